"""The end of `import torch`: refuses a second owner of our package names, then brings up the npu device type."""

import os
import sys

# Distribution -> the package that it and this wheel both have; two of them in one environment mix their files. Another
# apex is no conflict: it is used instead of ours (third_party/apex/__init__.py).
_CONFLICTS = {"torch_npu": "torch_npu"}


def _provided(package: str) -> bool:
    """Whether this wheel carries the package (beside torch itself)."""
    return os.path.isdir(os.path.join(os.path.dirname(os.path.dirname(__file__)), package))


def check_conflicts(path: list[str] | None = None) -> None:
    """Raises ImportError when another distribution of a package of ours is installed on `path` (sys.path)."""
    for folder in sys.path if path is None else path:
        if not folder.endswith("-packages"):
            continue
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            if not name.endswith((".dist-info", ".egg-info")):
                continue
            project = name.split("-", 1)[0].lower()
            # This wheel's own record of the name torch_npu says whose it is.
            if os.path.exists(os.path.join(folder, name, "part_of_torch")):
                continue
            if project in _CONFLICTS and _provided(_CONFLICTS[project]):
                package = _CONFLICTS[project]
                raise ImportError(
                    f"{name.rsplit('.', 1)[0]} in {folder} is another '{package}' beside the one that this torch wheel "
                    f"brings. Remove it: `pip uninstall {project}`, then reinstall this torch wheel "
                    "(`pip install --force-reinstall --no-deps torch-2.13.0+ascend-*.whl`); or, to keep it, "
                    "remove this wheel with `pip uninstall torch` and install upstream's torch."
                )


def load() -> None:
    """Checks the environment and imports `torch.npu`, which registers the device type."""
    check_conflicts()
    import torch.npu

    if os.environ.get("TORCH_TRANSFER_TO_NPU") == "1":
        import torch.npu.transfer_to_npu  # noqa: F401
