# load_with_acl_dump: the device's own dump, switched on for the operators that are in the loaded file and for no other.
"""ACL dump around single operators."""

import contextlib
import os
import threading

import torch

CONFIG = "acl.json"
_lock = threading.RLock()


def check() -> None:
    """Raises RuntimeError when a prerequisite of the guide does not hold."""
    if not (hasattr(torch, "npu") and torch.npu.is_available()):
        raise RuntimeError("torch.utils.dumper: load_with_acl_dump=True needs an npu")
    from torch.npu import dump

    if os.environ.get("ACL_DUMP_DATA", "0") not in ("", "0"):
        raise RuntimeError("torch.utils.dumper: load_with_acl_dump=True needs ACL_DUMP_DATA=0 in the environment")
    if torch.npu._acl_dump_active() or dump._open:
        raise RuntimeError(
            "torch.utils.dumper: load_with_acl_dump=True does not go with torch.npu.init_dump()/set_dump(), which the "
            "script has called"
        )
    if not os.path.isfile(CONFIG):
        raise RuntimeError(
            f"torch.utils.dumper: load_with_acl_dump=True reads {CONFIG} in the current directory ({os.getcwd()}); "
            'make it: {"dump": {"dump_list": [], "dump_path": "./output", "dump_mode": "all", "dump_op_switch": "on"}}'
        )
    with around(""):  # a bad configuration is told here, not by the first operator
        pass


@contextlib.contextmanager
def around(path: str):
    """ACL dump of what runs inside; one operator at a time, since the device has one dump for all threads."""
    with _lock:
        torch.npu.init_dump()
        try:
            torch.npu.set_dump(CONFIG)
            yield
        finally:
            torch.npu.finalize_dump()
