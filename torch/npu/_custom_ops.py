r"""
The operators that only an NPU has, as ``torch.npu_*`` and, where the first argument is the tensor, as methods.

The operators live in ``torch.ops.npu``. What is attached to ``torch`` here are small callables that look there when
they are first used, so that ``import torch`` pays for neither the operators' Python objects nor their documentation.
"""

import types

import torch

# A function of torch each; those of METHODS are methods of torch.Tensor as well.
FUNCTIONS = (
    "_npu_dropout_inplace",
    "npu_bounding_box_decode",
)
METHODS = (
    "_npu_dropout",
    "get_npu_format",
    "npu_alloc_float_status",
    "npu_clear_float_status",
    "npu_format_cast",
    "npu_format_cast_",
    "npu_get_float_status",
    "npu_set_",
)
# Their list of sizes may be spelled out: x.npu_transpose(2, 0, 1).
_VARIADIC = frozenset(("npu_broadcast", "npu_confusion_transpose", "npu_reshape", "npu_transpose"))


class _NpuOp:
    r"""One operator; calls ``torch.ops.npu.<name>``, whose overloads it documents."""

    __slots__ = ("__name__", "__qualname__", "_packet")
    __module__ = "torch"

    def __init__(self, name: str):
        self.__name__ = name
        self.__qualname__ = name
        self._packet = None

    def __call__(self, *args, **kwargs):
        packet = self._packet
        if packet is None:
            packet = self._packet = getattr(torch.ops.npu, self.__name__)
        if len(args) > 2 and self.__name__ in _VARIADIC and all(isinstance(a, int) for a in args[1:]):
            args = (args[0], args[1:])
        if type(kwargs.get("out")) in (tuple, list):
            outs = kwargs.pop("out")
            names = [a.name for a in packet.out._schema.arguments if a.is_out]
            if len(names) != len(outs):
                raise TypeError(f"{self.__name__}() expected out to have {len(names)} elements but got {len(outs)}")
            kwargs.update(zip(names, outs, strict=True))
        return packet(*args, **kwargs)

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<operator torch.{self.__name__}>"

    def __reduce__(self):
        return getattr, (torch, self.__name__)

    @property
    def __doc__(self) -> str:
        from ._custom_op_docs import doc_of

        return doc_of(self.__name__)


def attach() -> None:
    for name in FUNCTIONS:
        setattr(torch, name, _NpuOp(name))
    for name in METHODS:
        op = _NpuOp(name)
        setattr(torch, name, op)
        setattr(torch.Tensor, name, op)
