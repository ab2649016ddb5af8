# The porting tool under the name and place that the porting guide gives it. The tool itself is torch/npu/transplant; it
# is loaded from this source tree, or from the installed wheel, without importing torch, so that it starts at once.
"""python3 ms_fmk_transplt.py -i SRC -o OUT [-r rules.json] [-h]"""

import importlib.util
import os
import sys

_NAME = "npu_transplant"


def load_transplant():
    """The porting tool's package, under a name of its own.

    Raises:
        ImportError: neither a source tree nor an installed torch with the tool is there.
    """
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    here = os.path.dirname(os.path.abspath(__file__))
    homes = [os.path.join(here, "..", "..", "torch")]
    torch = importlib.util.find_spec("torch")
    if torch is not None:
        homes += torch.submodule_search_locations or []
    for home in homes:
        folder = os.path.normpath(os.path.join(home, "npu", "transplant"))
        start = os.path.join(folder, "__init__.py")
        if os.path.isfile(start):
            spec = importlib.util.spec_from_file_location(_NAME, start, submodule_search_locations=[folder])
            package = importlib.util.module_from_spec(spec)
            sys.modules[_NAME] = package
            spec.loader.exec_module(package)
            return package
    raise ImportError("ms_fmk_transplt: torch/npu/transplant is neither beside this script nor in an installed torch")


if __name__ == "__main__":
    load_transplant()
    sys.exit(importlib.import_module(f"{_NAME}.cli").main())
