"""`torch_npu`, the import name of the plug-in era: a thin alias whose modules are `torch.npu`'s own.

import torch_npu                      # also brings the device up where TORCH_DEVICE_BACKEND_AUTOLOAD=0
torch_npu.npu.set_device(0)           # torch.npu.set_device(0)
from torch_npu.npu import amp         # torch.npu.amp
torch_npu.npu_format_cast(x, 29)      # torch.npu_format_cast(x, 29)
"""

import importlib
import importlib.abc
import importlib.util
import sys

import torch
from torch import _npu_autoload

_npu_autoload.load()

from . import _C as _C  # noqa: E402
from ._format import Format as Format  # noqa: E402

_ALIASES = {
    **{f"{__name__}._C.{name}": f"torch._C.{name}" for name in ("_distributed_c10d", "_profiler")},
    f"{__name__}.npu": "torch.npu",
    **{f"{__name__}.{name}": f"torch.npu.{name}" for name in ("onnx", "optim", "profiler", "utils")},
    **{f"{__name__}.contrib.{name}": f"torch.contrib.npu.optimized_lib.{name}" for name in ("function", "module")},
}


class _SameModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch_npu.npu, torch_npu.profiler and their like where they are, so that nothing is executed twice."""

    def find_spec(self, fullname, path=None, target=None):
        if f"{fullname}.".startswith(tuple(f"{name}." for name in _ALIASES)):
            return importlib.util.spec_from_loader(fullname, self)
        return None

    def create_module(self, spec):
        alias = next(name for name in _ALIASES if f"{spec.name}.".startswith(f"{name}."))
        module = importlib.import_module(_ALIASES[alias] + spec.name.removeprefix(alias))
        spec.loader_state = module.__spec__
        # What it has loaded is not loaded again, which would put a submodule where a function has its name (`roll`).
        for name, loaded in list(sys.modules.items()):
            if name.startswith(f"{module.__name__}."):
                sys.modules.setdefault(spec.name + name.removeprefix(module.__name__), loaded)
        return module

    def exec_module(self, module):
        # The import system has just put the alias's spec on the module; its own belongs there.
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, _SameModules())
npu = importlib.import_module(f"{__name__}.npu")
__version__ = torch.__version__
# Dtypes that npu has no tensors of.
unsupported_dtype = [torch.quint4x2, torch.quint2x4]
# Further modules and names, which are loaded when they are asked for.
_MODULES = ("contrib", "distributed", "jit", "multiprocessing", "testing")
_LAZY = {"HiFloat8Tensor": "_hifloat8", "matmul_checksum": "_fault_checks", "erase_stream": "_streams"}
_OPERATORS = frozenset((*npu._custom_ops.FUNCTIONS, *npu._custom_ops.METHODS))


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    if name == "fast_gelu":
        return torch.npu_fast_gelu
    if hasattr(npu, name):
        return getattr(npu, name)
    if name in _OPERATORS:
        return getattr(torch, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}' (it is an alias of torch.npu)")


def __dir__():
    return sorted({*globals(), *dir(npu), *_MODULES, *_LAZY, *_OPERATORS, "fast_gelu"})
