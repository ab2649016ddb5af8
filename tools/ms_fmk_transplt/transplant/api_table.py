# The table of CUDA names and what stands for them on npu is torch.npu's, which patches by it. It is loaded from its
# file: the tool starts at once, and importing torch takes seconds.
"""The module ``torch/npu/_api_table.py``, without importing torch."""

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.npu._api_table import *  # noqa: F403
    from torch.npu._api_table import DEFAULT_VERSION as DEFAULT_VERSION

_HERE = os.path.dirname(os.path.abspath(__file__))
# In a source tree this is tools/ms_fmk_transplt/transplant, in the wheel torch/tools/ms_fmk_transplt/transplant.
_PLACES = [os.path.normpath(os.path.join(_HERE, "..", "..", "..", *home)) for home in (("torch", "npu"), ("npu",))]


def _load():
    for place in _PLACES:
        file = os.path.join(place, "_api_table.py")
        if os.path.isfile(file):
            spec = importlib.util.spec_from_file_location(__name__, file)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[__name__] = module
            spec.loader.exec_module(module)
            return
    raise ImportError(f"ms_fmk_transplt: _api_table.py is in none of {', '.join(_PLACES)}")


_load()
