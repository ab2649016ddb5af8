"""docs/plugin_names.md: which public names of the plug-in are refused, missing, or take other arguments.

python -m tools.plugin_names --write    writes it, from torch.npu._refused and test/test_npu/plugin_names.yaml
python -m tools.plugin_names            1 if it is out of date
"""

import importlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import yaml

from tools.setup_helpers.env import ROOT

TABLE = yaml.safe_load((ROOT / "test/test_npu/plugin_names.yaml").read_text(encoding="utf-8"))
DOCUMENT = ROOT / "docs/plugin_names.md"

_HEAD = """# The plug-in's names

Scripts write `import torch_npu`. That package has the public names of today's plug-in for torch 2.13 with their
arguments: where torch.npu has the thing, the same object; for the rest modules of its own (`contrib`, `distributed`,
`jit`, `testing`, `multiprocessing`). `test/test_npu/test_plugin_names.py` looks for each name of
[plugin_names.yaml](../test/test_npu/plugin_names.yaml), compares its arguments, and calls it. This page is made by
`python -m tools.plugin_names --write`.

{total} names; {refused} of them raise NotImplementedError with a reason, {missing} are missing.

## Refused
The error names what was called, and says:

"""


def all_names() -> Iterator[tuple[str, str]]:
    """Every name, with its arguments, re-exports and their methods too."""
    names = TABLE["names"]
    for owner, leaves in names.items():
        for leaf, arguments in leaves.items():
            yield f"{owner}.{leaf}", arguments
    for owner, homes in TABLE["again"].items():
        for home, again in homes.items():
            for leaf in again.split():
                yield f"{owner}.{leaf}", names[home][leaf]
                for method, arguments in names.get(f"{home}.{leaf}", {}).items():
                    yield f"{owner}.{leaf}.{method}", arguments


def find(name: str) -> Any:
    """The object of a dotted name, whose beginning is imported as far as it is a module."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = inspect.getattr_static(found, part) if inspect.isclass(found) else getattr(found, part)
            if isinstance(found, (staticmethod, classmethod)):
                found = found.__func__
        return found
    raise ModuleNotFoundError(name)


def refusal(name: str) -> str | None:
    """The name in torch.npu._refused's table of what a name is, if it is refused."""
    from torch.npu import _refused

    value = find(name)
    full = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    return full if full in _refused.TABLE else None


def rendered() -> str:
    """The document's text."""
    from torch.npu import _refused

    there = [name for name, _ in all_names() if name not in TABLE["missing"]]
    refused = sum(refusal(name) is not None for name in there)
    text = _HEAD.format(total=len(there) + len(TABLE["missing"]), refused=refused, missing=len(TABLE["missing"]))
    for reason, _ in _refused.GROUPS:
        group = [name for name, (_, why) in _refused.TABLE.items() if why == reason]
        text += f"- {reason}: {', '.join(f'`{name}`' for name in group)}\n"
    text += "\n## Missing\n| name | why, and what there is |\n| --- | --- |\n"
    text += "".join(f"| `{name}` | {why} |\n" for name, why in TABLE["missing"].items())
    text += "\n## Other arguments\n| name | why |\n| --- | --- |\n"
    return text + "".join(f"| `{name}` | {why} |\n" for name, why in TABLE["otherwise"].items())


def main(arguments: list[str]) -> int:
    """Compares, or writes with --write."""
    if arguments not in ([], ["--write"]):
        print(__doc__)
        return 2
    fresh = rendered()
    if DOCUMENT.is_file() and DOCUMENT.read_text(encoding="utf-8") == fresh:
        return 0
    if arguments:
        DOCUMENT.write_text(fresh, encoding="utf-8")
        return 0
    print("out of date; run python -m tools.plugin_names --write")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
