# The porting tool under the name and place that the porting guide gives it; the tool itself is the package `transplant`
# beside this file.
"""python3 ms_fmk_transplt.py -i SRC -o OUT [-r rules.json] [-h]"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from transplant.cli import main

if __name__ == "__main__":
    sys.exit(main())
