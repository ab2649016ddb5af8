r"""What a report about a fault should say of the machine: ``python -m torch_npu.utils.collect_env`` prints it."""

import os
import sys
from collections import namedtuple
from typing import Any

import torch
from torch.utils import collect_env as _upstream

from . import get_cann_version as get_cann_version

__all__ = [
    "SystemEnv",
    "check_directory_path_readable",
    "check_path_owner_consistent",
    "get_cann_version",
    "get_env_info",
    "get_pretty_env_info",
    "get_torch_npu_install_path",
    "get_torch_npu_version",
    "main",
    "pretty_str",
]

SystemEnv = namedtuple(
    "SystemEnv",
    [
        "torch_version",
        "torch_npu_version",
        "is_debug_build",
        "gcc_version",
        "clang_version",
        "cmake_version",
        "os",
        "libc_version",
        "python_version",
        "python_platform",
        "pip_version",
        "pip_packages",
        "conda_packages",
        "caching_allocator_config",
        "is_xnnpack_available",
        "cpu_info",
        "cann_version",
    ],
)

_LABELS = {
    "torch_version": "PyTorch version",
    "torch_npu_version": "Torch-npu version",
    "is_debug_build": "Is debug build",
    "os": "OS",
    "gcc_version": "GCC version",
    "clang_version": "Clang version",
    "cmake_version": "CMake version",
    "libc_version": "Libc version",
    "python_version": "Python version",
    "python_platform": "Python platform",
    "caching_allocator_config": "Caching allocator config",
    "is_xnnpack_available": "Is XNNPACK available",
    "cann_version": "CANN version",
    "cpu_info": "CPU",
}


def check_path_owner_consistent(path: str) -> None:
    r"""Raise RuntimeError unless ``path`` exists and is this user's (root may use what is others')."""
    if not os.path.exists(path):
        raise RuntimeError(f"there is no {path}")
    if os.geteuid() not in (0, os.stat(path).st_uid):
        raise RuntimeError(f"{path} belongs to another user")


def check_directory_path_readable(path: str) -> None:
    r"""Raise RuntimeError unless ``path`` is a directory of this user's, no symbolic link, that can be read."""
    check_path_owner_consistent(path)
    if os.path.islink(path):
        raise RuntimeError(f"{path} is a symbolic link")
    if not os.path.isdir(path):
        raise RuntimeError(f"{path} is no directory")
    if not os.access(path, os.R_OK):
        raise RuntimeError(f"{path} cannot be read")


def get_torch_npu_install_path() -> str:
    r"""Return the folder that holds the package torch_npu."""
    return os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))


def get_torch_npu_version() -> str:
    r"""Return the version of torch_npu, which is torch's."""
    return torch.__version__


def get_env_info() -> Any:
    r"""Return a :class:`SystemEnv`: versions of the system, its compilers, torch, CANN and packages, as texts."""
    run = _upstream.run
    pip_version, pip_packages = _upstream.get_pip_packages(run)
    config = {name: os.environ[name] for name in ("PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF") if name in os.environ}
    simulated = torch.npu.is_available() and torch._C._npu_isSimulator()
    return SystemEnv(
        torch_version=torch.__version__,
        torch_npu_version=get_torch_npu_version(),
        is_debug_build=str(torch.version.debug),
        gcc_version=_upstream.get_gcc_version(run),
        clang_version=_upstream.get_clang_version(run),
        cmake_version=_upstream.get_cmake_version(run),
        os=_upstream.get_os(run),
        libc_version="-".join(_upstream.get_libc_version()),
        python_version=sys.version.replace("\n", " "),
        python_platform=_upstream.get_python_platform(),
        pip_version=pip_version,
        pip_packages=pip_packages,
        conda_packages=_upstream.get_conda_packages(run),
        caching_allocator_config=config,
        is_xnnpack_available=_upstream.is_xnnpack_available(),
        cpu_info=_upstream.get_cpu_info(run),
        cann_version="none: the NPU is simulated" if simulated else get_cann_version() or None,
    )


def pretty_str(envinfo: Any) -> str:
    r"""Return a :class:`SystemEnv` as lines of text."""
    lines = []
    for field, label in _LABELS.items():
        value = getattr(envinfo, field)
        text = "could not be collected" if value is None else str(value).strip()
        lines.append(f"{label}:\n{text}" if "\n" in text else f"{label}: {text}")
    packages = [(envinfo.pip_version, envinfo.pip_packages), ("conda", envinfo.conda_packages)]
    lines += [f"[{tool}] {line}" for tool, found in packages for line in (found or "").splitlines()]
    return "\n".join(lines)


def get_pretty_env_info() -> str:
    r"""Return :func:`get_env_info` as lines of text."""
    return pretty_str(get_env_info())


def main() -> None:
    r"""Print :func:`get_pretty_env_info`."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
