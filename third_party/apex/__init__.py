r"""apex, part of the torch wheel: mixed precision, fused optimizers and SyncBatchNorm as ported scripts import them.

Written for npu in Python; apex's CUDA kernels are not here, and what has none says what to use instead. Where another
apex is installed, that one is loaded, with a warning.
"""

import importlib.metadata
import os
import sys
import warnings


def _other_apex() -> str | None:
    """The folder of another apex that is installed, or None; ImportError where this one has overwritten its files."""
    here = os.path.dirname(os.path.abspath(__file__))
    for distribution in importlib.metadata.distributions(name="apex"):
        folder = os.path.abspath(str(distribution.locate_file("apex")))
        files = {str(file) for file in distribution.files or ()}
        # PyPI has another project of this name, which is no apex.
        if "apex/amp/__init__.py" not in files and (folder == here or not os.path.isdir(os.path.join(folder, "amp"))):
            continue
        if folder == here:
            raise ImportError(
                f"apex {distribution.version} and this torch wheel are installed over each other in {here}, and the "
                "wheel's files came last: `pip install --force-reinstall --no-deps apex` to have that apex, or `pip "
                "uninstall apex` and `pip install --force-reinstall --no-deps` of the torch wheel to have the wheel's"
            )
        return folder
    return None


def _load_other(folder: str) -> None:
    """Becomes the package in `folder`."""
    warnings.warn(f"apex in {folder} is loaded instead of the one that the torch wheel brings", stacklevel=3)
    module = sys.modules[__name__]
    module.__path__ = [folder]
    module.__file__ = os.path.join(folder, "__init__.py")
    with open(module.__file__, "rb") as file:
        exec(compile(file.read(), module.__file__, "exec"), module.__dict__)


_folder = _other_apex()
if _folder is not None:
    _load_other(_folder)
else:
    from . import amp, optimizers, parallel

    __all__ = ["amp", "optimizers", "parallel"]
    # Parts of apex that are CUDA kernels, or that torch has by now.
    _INSTEAD = {
        "fp16_utils": "apex.amp",
        "multi_tensor_apply": "torch._foreach_* operators",
        "RNN": "torch.nn",
        "mlp": "torch.nn.Sequential",
        "fused_dense": "torch.nn.Linear",
        "transformer": "torch.nn.functional.scaled_dot_product_attention and torch.distributed.tensor",
    }

    def _instead(name: str) -> ImportError:
        return ImportError(f"apex.{name} needs CUDA kernels, which an npu does not have; use {_INSTEAD[name]}")

    class _SaysWhatToUse:
        """Answers `import apex.fp16_utils` and `from apex.fp16_utils import ...` as `apex.fp16_utils` is answered."""

        @staticmethod
        def find_spec(name: str, path=None, target=None) -> None:
            package, _, part = name.partition(".")
            if package == __name__ and part.partition(".")[0] in _INSTEAD:
                raise _instead(part.partition(".")[0])

    sys.meta_path.append(_SaysWhatToUse)

    def __getattr__(name: str):
        if name == "normalization":
            return importlib.import_module("apex.normalization")
        if name in _INSTEAD:
            raise _instead(name)
        raise AttributeError(f"module 'apex' has no attribute '{name}'; on npu it has {', '.join(__all__)}")
