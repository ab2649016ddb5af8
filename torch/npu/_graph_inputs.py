r"""Which tensors from outside a graph reads, for ``check_input_liveness`` of :mod:`torch.npu.graphs`."""

import traceback
import weakref
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torch


class _Input:
    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.address = storage.data_ptr()
        self.storage = weakref.ref(storage)
        self.text = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        self.used_at = "".join(traceback.format_stack()[:-4])

    def is_alive(self) -> bool:
        storage = self.storage()
        return storage is not None and storage.data_ptr() == self.address


class InputTracker(TorchDispatchMode):
    r"""Notes, while it is started, each npu tensor that an operator reads and none of them has made."""

    def __init__(self) -> None:
        super().__init__()
        self._inputs: dict[int, _Input] = {}
        self._made: set[int] = set()
        self._started = False

    def start(self) -> None:
        self._started = True
        self.__enter__()

    def stop(self) -> None:
        if self._started:
            self._started = False
            self.__exit__(None, None, None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in self._tensors((args, kwargs)):
            address = tensor.untyped_storage().data_ptr()
            if address not in self._made and address not in self._inputs:
                self._inputs[address] = _Input(tensor)
        result = func(*args, **(kwargs or {}))
        for tensor in self._tensors(result):
            address = tensor.untyped_storage().data_ptr()
            if address not in self._inputs:
                self._made.add(address)
        return result

    @staticmethod
    def _tensors(values: Any) -> list[torch.Tensor]:
        return [v for v in tree_leaves(values) if isinstance(v, torch.Tensor) and v.device.type == "npu"]

    def check(self) -> None:
        r"""Raise RuntimeError if one of the tensors has been freed since."""
        gone = [i for i in self._inputs.values() if not i.is_alive()]
        if gone:
            first = gone[0]
            raise RuntimeError(
                f"NPUGraph.replay: {len(gone)} tensor(s) that the graph reads have been freed since the capture, among "
                f"them one of {first.text}; keep them as long as the graph. It was captured at\n{first.used_at}"
            )
