r"""Saving in the background, and loading, which is torch's own."""

import io
import pickle
import threading
from typing import Any

from torch.serialization import DEFAULT_PROTOCOL, load

import torch

__all__ = ["load", "save_async"]


def save_async(
    obj: object,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    model: "torch.nn.Module | None" = None,
) -> None:
    r"""Save as :func:`torch.save` does, and write the file in the background.

    What is saved is what ``obj`` holds at this call: it is copied to the host's memory before the call returns, so that
    the next step may change it. The interpreter ends after the file has been written.

    Args:
        obj, f, pickle_module, pickle_protocol, _use_new_zipfile_serialization, _disable_byteorder_record: as of
            :func:`torch.save`.
        model (torch.nn.Module, optional): the plug-in delays this model's backward until the copy is made; here it is.
    """
    held = io.BytesIO()
    torch.save(obj, held, pickle_module, pickle_protocol, _use_new_zipfile_serialization, _disable_byteorder_record)

    def write() -> None:
        if hasattr(f, "write"):
            f.write(held.getbuffer())
            f.flush()
            return
        with open(f, "wb") as file:
            file.write(held.getbuffer())

    threading.Thread(target=write, name="torch.npu.utils.save_async").start()
