r"""Switches of the NPU back end that scripts set as attributes, and :func:`cast_weight`, which one of them governs."""

import torch

allow_internal_format: bool = False
r"""Whether ``Module.to("npu")`` puts weights into the formats of the cube unit (see :func:`cast_weight`). Off, since
the simulated device chooses its layouts by itself and a format only costs it conversions."""

_FRACTAL_Z, _FRACTAL_NZ, _FRACTAL_Z_3D = 4, 29, 33


def cast_weight(module: "torch.nn.Module") -> None:
    r"""Put the weights of ``module`` and its children that are on an NPU into the formats of its cube unit.

    The weight of ``nn.Conv2d`` becomes FRACTAL_Z (4), that of ``nn.Conv3d`` FRACTAL_Z_3D (33), that of ``nn.Linear``
    FRACTAL_NZ (29), unless :func:`torch.npu.set_mm_bmm_format_nd` keeps it plain; convolutions in groups stay as they
    are. Values and Parameter objects do not change. Nothing happens while :data:`allow_internal_format` is False.
    """
    if not allow_internal_format:
        return
    for child in module.modules():
        weight = getattr(child, "weight", None)
        if not isinstance(weight, torch.Tensor) or weight.device.type != "npu":
            continue
        if isinstance(child, torch.nn.Linear):
            if torch.npu.get_mm_bmm_format_nd():
                continue
            weight.data = torch.ops.npu.npu_format_cast(weight.data, _FRACTAL_NZ)
        elif isinstance(child, torch.nn.Conv2d) and child.groups == 1:
            weight.data = torch.ops.npu.npu_format_cast(weight.data, _FRACTAL_Z)
        elif isinstance(child, torch.nn.Conv3d) and child.groups == 1:
            weight.data = torch.ops.npu.npu_format_cast(weight.data, _FRACTAL_Z_3D)
