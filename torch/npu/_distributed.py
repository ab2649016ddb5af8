"""The `hccl` back end of torch.distributed: its registration, and the names that scripts look for."""

import torch.distributed

import torch


def is_hccl_available() -> bool:
    """Whether this build has the `hccl` back end (USE_HCCL=1 and USE_DISTRIBUTED=1)."""
    return hasattr(torch.distributed, "ProcessGroupHCCL")


def _create(common, options):
    """Makes a group's back end, as `torch.distributed.Backend.register_backend` asks for it (extended_api=True)."""
    kind = torch._C._distributed_c10d.ProcessGroupHCCL
    if options is None:
        options = kind.Options()
    elif not isinstance(options, kind.Options):
        raise TypeError(
            f"the hccl back end takes torch.distributed.ProcessGroupHCCL.Options, but got {type(options).__name__}"
        )
    options._timeout = common.timeout
    options.group_name = common.group_id
    options.global_ranks_in_group = common.global_ranks_in_group or list(range(common.group_size))
    return kind(common.store, common.group_rank, common.group_size, options)


def register() -> None:
    """Adds the back end to torch.distributed, as the one of npu tensors, unless the build leaves it out."""
    if not torch.distributed.is_available():
        return
    c10d = torch.distributed.distributed_c10d
    for module in (c10d, torch.distributed):
        vars(module)["is_hccl_available"] = is_hccl_available
    if "USE_HCCL=0" in getattr(torch.version, "ascend_switches", ""):
        return
    group = torch._C._distributed_c10d.ProcessGroupHCCL
    group.__module__ = "torch.distributed.distributed_c10d"
    for module in (c10d, torch.distributed):
        vars(module)["ProcessGroupHCCL"] = group
    torch.distributed.Backend.register_backend("hccl", _create, extended_api=True, devices=["npu"])
