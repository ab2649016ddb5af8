r"""
Dumping what operators read and write, on the device: :func:`init_dump`, :func:`set_dump`, :func:`finalize_dump`.

Each operator that the device executes between :func:`set_dump` and :func:`finalize_dump` leaves one file,
``{dump_path}/{time}/{deviceid}/{model_id}/{data_index}/{op_type}.{op_name}.{taskid}.{stream_id}.{timestamp}``;
``tools/msaccucmp/msaccucmp.py convert`` turns such files into ``.npy``.
"""

import os

import torch

_open = False  # init_dump was called, and finalize_dump was not
_configured = False  # and set_dump was


def init_dump() -> None:
    r"""Begin a dump session; :func:`set_dump` then says what is dumped.

    Raises:
        RuntimeError: a session is open, or there is no NPU.
    """
    global _open
    torch.npu.init()
    torch._C._npu_initDump()
    _open = True


def set_dump(cfg_file: str | os.PathLike) -> None:
    r"""Dump the operators called from now on as a configuration file says; call :func:`init_dump` before.

    Args:
        cfg_file (str or path-like): a JSON file ``{"dump": {...}}`` with the fields

            - ``dump_path``: the folder for the files, made if need be; relative to the working directory of this call;
            - ``dump_mode``: ``"output"`` (default), ``"input"`` or ``"all"``;
            - ``dump_op_switch``: ``"on"``, or ``"off"`` (default), which dumps nothing;
            - ``dump_debug``: ``"on"`` dumps the operators that overflow, and only those;
            - ``dump_list``: for models; leave it empty (``[]``).

    Called again, the new file counts from there on.

    Raises:
        RuntimeError: :func:`init_dump` was not called; the file cannot be read or is not such a configuration (the text
            has file and line); the folder cannot be written to. Nothing changes then.
    """
    global _configured
    torch._C._npu_setDump(os.fsencode(cfg_file))
    _configured = True


def finalize_dump() -> None:
    r"""End the dump session. Waits for all NPUs in use, so that the files are complete when it returns.

    Raises:
        RuntimeError: no session is open; or work failed on a device, such as writing a file (the session ends then,
            too).
    """
    global _configured, _open
    try:
        for index in range(torch.npu.device_count()):
            if torch._C._npu_hasPrimaryContext(index):
                torch.npu.synchronize(index)
    finally:
        torch._C._npu_finalizeDump()
        _configured = _open = False


def _acl_dump_active() -> bool:
    r"""Whether operators may be dumped by what the script or the environment (``ACL_DUMP_DATA=1``) has set up."""
    return _configured or torch._C._npu_dumpsFromTheStart()
