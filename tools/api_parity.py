#!/usr/bin/env python
"""List torch.cuda's public names and whether torch.npu has them: present, or not applicable for a stated reason.

    python tools/api_parity.py            a table, one name per line
    python tools/api_parity.py --json     {"present": [...], "not_applicable": {name: reason}, "unexplained": [...]}

Exits with 1 if a name is neither. The names are those of the torch.cuda that is installed, so a new base version shows
what it added.
"""

import argparse
import importlib
import json
import sys
from typing import Any

_SMI = "read from nvidia-smi's library; `npu-smi info` shows it for Ascend"
_CUDA_RUNTIME = "the CUDA run-time library as a module; AscendCL errors are raised as torch.AcceleratorError"
_MEM_POOL = "private pools for CUDA graphs and for NCCL buffers; npu memory comes from the caching allocator alone"
_PLUGGABLE = "replaces the allocator by a CUDA library of one's own; npu memory comes from the caching allocator alone"
_NOCACHE = "a switch of CUDA's allocator for its memory checkers; npu memory always comes from the caching allocator"
_NVCC = "what nvcc compiled for; operators are compiled on the device by CANN"
_SPARSE = "there are no sparse tensors on npu"
_TUNABLE = "chooses between cuBLAS and hipBLASLt kernels; CANN chooses its own"
_NCCL = "collectives over tensors of one process through NCCL; use torch.distributed"
_NVTX = "marks for NVIDIA's profilers"
_CUDA_PROFILER = "starts and stops NVIDIA's profilers; see torch.profiler"
_GDS = "GPUDirect Storage, NVIDIA's path from disk to GPU"
_GREEN = "partitions a GPU's multiprocessors"
_JIT = "compiles CUDA C++ text with nvrtc"
_HANDLE = "a handle of a CUDA library; CANN has none"

NOT_APPLICABLE = {
    "CUDAPluggableAllocator": _PLUGGABLE,
    "change_current_allocator": _PLUGGABLE,
    "MemPool": _MEM_POOL,
    "use_mem_pool": _MEM_POOL,
    "caching_allocator_disabled": _NOCACHE,
    "caching_allocator_enable": _NOCACHE,
    "CudaError": _CUDA_RUNTIME,
    "check_error": _CUDA_RUNTIME,
    "cudaStatus": _CUDA_RUNTIME,
    "cudart": _CUDA_RUNTIME,
    "current_blas_handle": _HANDLE,
    "current_solver_handle": _HANDLE,
    "get_arch_list": _NVCC,
    "get_gencode_flags": _NVCC,
    "DEVICE_REQUIREMENT": _NVCC,
    "PYTORCH_RELEASES_CODE_CC": _NVCC,
    "clock_rate": _SMI,
    "list_gpu_processes": _SMI,
    "memory_usage": _SMI,
    "power_draw": _SMI,
    "temperature": _SMI,
    "utilization": _SMI,
    "gds": _GDS,
    "green_contexts": _GREEN,
    "GreenContext": _GREEN,
    "jiterator": _JIT,
    "nccl": _NCCL,
    "nvtx": _NVTX,
    "profiler": _CUDA_PROFILER,
    "sparse": _SPARSE,
    "tunable": _TUNABLE,
}
# Spelled otherwise here.
RENAMED = {"CUDAGraph": "NPUGraph", "DeferredCudaCallError": "DeferredNpuCallError"}
# Sub-modules whose public names count too, unless the sub-module itself is not applicable.
SUBMODULES = ("amp", "memory", "random", "streams")
# Names that torch.cuda merely imports for its own use.
_INCIDENTAL = {
    "Any", "Callable", "Device", "NewType", "Optional", "TYPE_CHECKING", "annotations", "cast", "classproperty",
    "ctypes", "importlib", "lru_cache", "os", "platform", "threading", "torch", "traceback", "warnings",
}  # fmt: skip


def public_names() -> list[str]:
    """Return torch.cuda's public names, those of its sub-modules with their prefix ("memory.empty_cache")."""
    cuda = importlib.import_module("torch.cuda")
    names = {name for name in {*dir(cuda), *cuda.__all__} if not name.startswith("_")} - _INCIDENTAL
    for module_name in SUBMODULES:
        module = importlib.import_module(f"torch.cuda.{module_name}")
        public = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
        names |= {f"{module_name}.{name}" for name in public if name not in _INCIDENTAL}
    return sorted(names)


def compare() -> dict:
    """Return ``present`` (list), ``not_applicable`` (name to reason) and ``unexplained`` (list)."""
    npu = importlib.import_module("torch.npu")
    result: dict[str, Any] = {"present": [], "not_applicable": {}, "unexplained": []}
    for name in public_names():
        module_name, _, leaf = name.rpartition(".")
        owner = getattr(npu, module_name, None) if module_name else npu
        refused = getattr(owner, RENAMED.get(leaf, leaf), None) if owner is not None else None
        refused = npu._refused.TABLE.get(f"{getattr(refused, '__module__', '')}.{getattr(refused, '__qualname__', '')}")
        if refused is not None:
            result["not_applicable"][name] = refused[1]
        elif owner is not None and hasattr(owner, RENAMED.get(leaf, leaf)):
            result["present"].append(name)
        elif leaf in NOT_APPLICABLE:
            result["not_applicable"][name] = NOT_APPLICABLE[leaf]
        else:
            result["unexplained"].append(name)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    result = compare()
    if options.json:
        print(json.dumps(result, indent=2))
        return 1 if result["unexplained"] else 0
    width = max(len(name) for name in public_names()) + 2
    for name in result["present"]:
        print(f"{name:<{width}}present" + (f" as {RENAMED[name]}" if name in RENAMED else ""))
    for name, reason in result["not_applicable"].items():
        print(f"{name:<{width}}not applicable: {reason}")
    for name in result["unexplained"]:
        print(f"{name:<{width}}UNEXPLAINED")
    counts = [len(result[key]) for key in ("present", "not_applicable", "unexplained")]
    print("{} present, {} not applicable, {} unexplained".format(*counts))
    return 1 if result["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
