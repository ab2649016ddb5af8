r"""
The operators that only an NPU has, as ``torch.npu_*`` and, where the first argument is the tensor, as methods.

The operators live in ``torch.ops.npu``. What is attached to ``torch`` here are small callables that look there when
they are first used, so that ``import torch`` pays for neither the operators' Python objects nor their documentation.
"""

import json
import types
from pathlib import Path

from torch.jit import _builtins

import torch

from .operators import OPERATORS, attach as attach_composed

# Operators that the operator table declares whole, with their documentation; the build writes the file.
DECLARED: dict[str, dict] = json.loads(Path(__file__).with_name("_declared_ops.json").read_text(encoding="utf-8"))

# A function of torch each; those of METHODS are methods of torch.Tensor as well.
FUNCTIONS = (
    *(name for name, told in DECLARED.items() if not told["method"]),
    *OPERATORS,
    "_npu_dropout_inplace",
    "npu_add_rms_norm",
    "npu_anti_quant",
    "npu_apply_adam",
    "npu_apply_rotary_pos_emb",
    "npu_bert_apply_adam",
    "npu_bounding_box_decode",
    "npu_confusion_transpose_backward",
    "npu_conv2d",
    "npu_conv2d_backward",
    "npu_conv3d",
    "npu_conv3d_backward",
    "npu_conv_transpose2d",
    "npu_conv_transpose2d_backward",
    "npu_conv_transpose3d_backward",
    "npu_convolution",
    "npu_convolution_backward",
    "npu_convolution_double_backward",
    "npu_convolution_transpose",
    "npu_convolution_transpose_backward",
    "npu_cross_entropy_loss",
    "npu_cross_entropy_loss_backward",
    "npu_deep_norm",
    "npu_deformable_conv2d",
    "npu_deformable_conv2dbk",
    "npu_dropoutV2_backward",
    "npu_dropout_backward",
    "npu_dropout_gen_mask",
    "npu_dropout_with_add_softmax_backward",
    "npu_dynamic_quant",
    "npu_dynamic_quant_asymmetric",
    "npu_enque_tensor",
    "npu_fast_gelu_backward",
    "npu_fusion_attention",
    "npu_fusion_attention_grad",
    "npu_geglu_grad",
    "npu_gelu_backward",
    "npu_gelu_mul",
    "npu_giou_backward",
    "npu_group_norm_silu",
    "npu_group_norm_swish",
    "npu_group_quant",
    "npu_grouped_matmul",
    "npu_gru",
    "npu_gru_backward",
    "npu_ifmr",
    "npu_interleave_rope",
    "npu_iou",
    "npu_layer_norm_eval",
    "npu_linear",
    "npu_linear_backward",
    "npu_lstm",
    "npu_lstm_backward",
    "npu_lstm_cell",
    "npu_lstm_cell_backward",
    "npu_lstm_data",
    "npu_lstm_data_backward",
    "npu_max_backward",
    "npu_min_backward",
    "npu_mish_backward",
    "npu_moe_compute_expert_tokens",
    "npu_moe_finalize_routing",
    "npu_moe_gating_top_k_softmax",
    "npu_moe_init_routing",
    "npu_moe_token_permute",
    "npu_moe_token_permute_grad",
    "npu_moe_token_unpermute",
    "npu_moe_token_unpermute_grad",
    "npu_multi_head_attention",
    "npu_multi_head_attention_backward",
    "npu_pad",
    "npu_ps_roi_pooling_backward",
    "npu_ptiou",
    "npu_quant_matmul",
    "npu_random_choice_with_mask",
    "npu_rms_norm_backward",
    "npu_rotary_mul_backward",
    "npu_scaled_masked_softmax",
    "npu_scaled_masked_softmax_backward",
    "npu_sign_bits_unpack",
    "npu_silu_backward",
    "npu_softmax_cross_entropy_with_logits_backward",
    "npu_swiglu_backward",
    "npu_trans_quant_param",
    "npu_weight_quant_batchmatmul",
)
METHODS = (
    *(name for name, told in DECLARED.items() if told["method"]),
    "_npu_dropout",
    "_npu_dropout_gen_mask",
    "get_npu_format",
    "npu_alloc_float_status",
    "npu_bmmV2",
    "npu_broadcast",
    "npu_clear_float_status",
    "npu_confusion_transpose",
    "npu_dropoutV2",
    "npu_dropout_do_mask",
    "npu_dropout_with_add_softmax",
    "npu_dtype_cast",
    "npu_dtype_cast_",
    "npu_fast_gelu",
    "npu_format_cast",
    "npu_format_cast_",
    "npu_geglu",
    "npu_gelu",
    "npu_gemma_rms_norm",
    "npu_get_float_status",
    "npu_giou",
    "npu_hcom_allreduce",
    "npu_indexing",
    "npu_masked_fill_range",
    "npu_max",
    "npu_min",
    "npu_mish",
    "npu_nms_rotated",
    "npu_normalize_batch",
    "npu_one_hot",
    "npu_quantize",
    "npu_reshape",
    "npu_rms_norm",
    "npu_roi_alignbk",
    "npu_rotary_mul",
    "npu_rotated_box_decode",
    "npu_rotated_box_encode",
    "npu_scatter",
    "npu_scatter_nd_update",
    "npu_scatter_nd_update_",
    "npu_set_",
    "npu_sign_bits_pack",
    "npu_silu",
    "npu_silu_",
    "npu_slice",
    "npu_softmax_cross_entropy_with_logits",
    "npu_sort_v2",
    "npu_stride_add",
    "npu_stride_copy",
    "npu_sub_sample",
    "npu_swiglu",
    "npu_transpose",
)
# Their list of sizes may be spelled out: x.npu_transpose(2, 0, 1).
_VARIADIC = frozenset(("npu_broadcast", "npu_confusion_transpose", "npu_reshape", "npu_transpose"))


def _spell_out(overload: torch._ops.OpOverload, kwargs: dict) -> None:
    r"""Gives the outputs of the list ``out`` their names."""
    outs = kwargs.pop("out")
    names = [a.name for a in overload._schema.arguments if a.is_out]
    if len(names) != len(outs):
        name = overload._schema.name.removeprefix("npu::")
        raise TypeError(f"{name}() expected out to have {len(names)} elements but got {len(outs)}")
    kwargs.update(zip(names, outs, strict=True))


class _NpuOp:
    r"""One operator; calls ``torch.ops.npu.<name>``, whose overloads it documents."""

    __slots__ = ("__name__", "__qualname__", "__weakref__", "_packet")
    __module__ = "torch"

    def __init__(self, name: str):
        self.__name__ = name
        self.__qualname__ = name
        self._packet = None

    def __call__(self, *args, **kwargs):
        packet = self._packet
        if packet is None:
            packet = self._packet = getattr(torch.ops.npu, self.__name__)
        if not args and "input" in kwargs:
            # Python's name of the tensor that a schema calls self.
            names = {a.name for a in getattr(packet, packet.overloads()[0])._schema.arguments}
            if "input" not in names and "self" in names:
                kwargs["self"] = kwargs.pop("input")
        if len(args) > 2 and self.__name__ in _VARIADIC and all(isinstance(a, int) for a in args[1:]):
            args = (args[0], args[1:])
        if type(kwargs.get("out")) in (tuple, list):
            _spell_out(packet.out, kwargs)
        return packet(*args, **kwargs)

    def __getattr__(self, name):
        r"""An overload, as of ``torch.ops.npu``, that takes several outputs as ``out`` too."""
        if name.startswith("_"):
            raise AttributeError(name)
        overload = getattr(getattr(torch.ops.npu, self.__name__), name)
        if not isinstance(overload, torch._ops.OpOverload):
            raise AttributeError(name)

        def call(*args, **kwargs):
            if type(kwargs.get("out")) in (tuple, list):
                _spell_out(overload, kwargs)
            return overload(*args, **kwargs)

        return call

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<operator torch.{self.__name__}>"

    def __reduce__(self):
        return getattr, (torch, self.__name__)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        from ._custom_op_docs import doc_of

        return doc_of(self.__name__)


def attach() -> None:
    attach_composed()
    for name in FUNCTIONS:
        setattr(torch, name, _NpuOp(name))
    for name in METHODS:
        op = _NpuOp(name)
        setattr(torch, name, op)
        setattr(torch.Tensor, name, op)
    # torch.jit.script compiles a call of one as the operator's.
    for name in (*FUNCTIONS, *METHODS):
        _builtins._register_builtin(getattr(torch, name), f"npu::{name}")
