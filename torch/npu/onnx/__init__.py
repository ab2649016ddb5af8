r"""
ONNX files of npu models: how npu operators are exported, and what CANN documents of a file.

``torch.onnx.export`` takes models and inputs on npu. Operators of ``torch_npu.npu_*`` that CANN's parser knows by name
become nodes of CANN's domain (``npu::NPURmsNorm``), others that are composed of aten operators ONNX's own; see
docs/export.md for the list. ``python -m torch.npu.onnx.check FILE`` reads a file as ATC would.
"""

from typing import Any

__all__ = ["NodeReport", "check_model", "plain_operators"]


def __getattr__(name: str) -> Any:
    if name == "plain_operators":
        from ._export import plain_operators

        return plain_operators
    if name == "NodeReport":
        from .check import NodeReport

        return NodeReport
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def check_model(model: Any) -> list:
    r"""Return what CANN documents of each node of an ONNX model: a list of :class:`NodeReport`.

    Args:
        model (onnx.ModelProto or path): the model, or its file.

    Raises:
        ImportError: the package onnx or pyyaml is missing.
        ValueError: the file is no ONNX model.
        FileNotFoundError: there is no such file.
    """
    from .check import check

    return check(model)
