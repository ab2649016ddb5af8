"""The `hccl` back end of torch.distributed: its registration, and the names that scripts look for."""

import re
import socket

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


def explain(error: Exception) -> Exception:
    """The error of a rank that did not find the group's store, with causes and remedies, as the FAQ names them."""
    text = str(error)
    found = re.search(r"timed out after \d+ms while trying to connect to \((.*), (\d+)\)", text)
    if not found:
        return error
    host, port = found.groups()
    try:
        socket.getaddrinfo(host, int(port))
    except socket.gaierror:
        why = (
            f"host not found. '{host}' is neither an address nor a name that this host knows. MASTER_ADDR (--addr, "
            "init_method) is this server's own address where one server trains, and on every one of several servers "
            "that of the server of rank 0"
        )
    else:
        why = (
            f"connect() timed out. Nobody answers at {host}, port {port}: rank 0 does not run there (is MASTER_ADDR, "
            "--addr or init_method that of its server?), or a firewall blocks the port: open it, or choose another "
            "with MASTER_PORT"
        )
    return type(error)(f"{why}\n{text}")


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
