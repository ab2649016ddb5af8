# Writes the API table into docs/porting.md, between its two markers; the tests check that it is up to date.
"""python tools/ms_fmk_transplt/update_docs.py"""

import os
import sys

from transplant import api_table

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "porting.md")
BEGIN, END = "<!-- API table: begin (tools/ms_fmk_transplt/update_docs.py writes it) -->\n", "<!-- API table: end -->\n"


def main() -> int:
    table = api_table.markdown()
    with open(DOCS, encoding="utf-8") as file:
        head, _, rest = file.read().partition(BEGIN)
    _, _, tail = rest.partition(END)
    with open(DOCS, "w", encoding="utf-8") as file:
        file.write(head + BEGIN + table + END + tail)
    return 0


if __name__ == "__main__":
    sys.exit(main())
