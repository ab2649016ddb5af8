r"""
The operators ``npu_*`` that are composed of upstream's operators in Python.

An operator here is a function of tensors with a schema (see :mod:`._registration`). It is registered as
CompositeImplicitAutograd, so autograd, fake tensors, torch.compile and export see the operators that it is made of; on
a card these run one after another. An operator that is worth a kernel of its own stands in the operator table instead
(``aten/src/ATen/native/npu/<family>/npu_native_functions.yaml``).

A family is a module, and is imported when one of its operators is looked up for the first time: ``import torch`` pays
for none of them. So TorchScript, and C++ that asks the dispatcher for a name, find an operator only after
``torch.ops.npu.<name>`` was looked up once.
"""

import importlib

from torch._ops import _OpNamespace

import torch

# What each module defines. Overloads belong to their operator's name.
FAMILIES: dict[str, tuple[str, ...]] = {
    "announced_attention": (
        "_npu_fusion_attention_grad_v3_get_max_workspace",
        "_npu_fusion_attention_grad_v3_infer_output",
        "_npu_fusion_attention_v3_get_max_workspace",
        "_npu_fusion_attention_v3_infer_output",
    ),
    "block_attention": (
        "npu_block_sparse_attention",
        "npu_block_sparse_attention_backward",
    ),
    "caches": (
        "npu_advance_step_flashattn",
        "npu_gather_pa_kv_cache",
        "npu_gather_pa_kv_cache_functional",
        "npu_scatter_list",
        "npu_scatter_list_",
        "npu_scatter_pa_cache",
        "npu_scatter_pa_kv_cache",
        "npu_scatter_pa_kv_cache_functional",
    ),
    "compression": (
        "npu_nsa_compress",
        "npu_nsa_compress_grad",
    ),
    "flash_attention": (
        "npu_incre_flash_attention",
        "npu_prompt_flash_attention",
    ),
    "floyd_attention": (
        "npu_fused_floyd_attention",
        "npu_fused_floyd_attention_backward",
    ),
    "fusion_attention": (
        "npu_fusion_attention_grad_v2",
        "npu_fusion_attention_grad_v3",
        "npu_fusion_attention_v2",
        "npu_fusion_attention_v3",
    ),
    "hyper_connections": (
        "npu_mhc_post",
        "npu_mhc_post_backward",
        "npu_mhc_pre",
        "npu_mhc_sinkhorn",
        "npu_mhc_sinkhorn_backward",
    ),
    "infer_attention": (
        "_npu_fused_infer_attention_score_get_max_workspace",
        "_npu_fused_infer_attention_score_infer_output",
        "_npu_fused_infer_attention_score_v2_get_max_workspace",
        "_npu_fused_infer_attention_score_v2_infer_output",
        "npu_fused_infer_attention_score",
        "npu_fused_infer_attention_score_v2",
    ),
    "latent_attention": (
        "npu_kv_rmsnorm_rope_cache",
        "npu_kv_rmsnorm_rope_cache_v2",
        "npu_kv_rmsnorm_rope_cache_v2_functional",
        "npu_mla_prolog",
        "npu_mla_prolog_v2",
        "npu_mla_prolog_v3",
        "npu_mla_prolog_v3_functional",
    ),
    "losses": (
        "npu_apply_adam_w",
        "npu_binary_cross_entropy_with_logits_backward",
        "npu_fused_cross_entropy_loss_with_max_sum",
        "npu_fused_linear_cross_entropy_loss_with_max_sum_backward",
        "npu_fused_linear_online_max_sum",
        "npu_renorm_backward",
        "npu_sim_exponential_",
        "npu_top_k_top_p",
    ),
    "merged_attention": (
        "npu_attention_update",
        "npu_ring_attention_update",
    ),
    "norms": (
        "npu_add_layer_norm",
        "npu_add_layer_norm_backward",
        "npu_add_rms_norm_cast",
        "npu_add_rms_norm_dynamic_quant",
        "npu_add_rms_norm_quant",
        "npu_add_rms_norm_v2",
        "npu_add_rms_norm_v2_functional",
        "npu_deep_norm_backward",
        "npu_group_norm_swish_grad",
        "npu_layernorm_grad",
        "npu_rms_norm_quant",
        "npu_rms_norm_quant_v2",
    ),
    "positions": ("npu_mrope",),
    "recurrences": (
        "npu_chunk_gated_delta_rule",
        "npu_fused_causal_conv1d",
        "npu_fused_causal_conv1d_v2",
        "npu_masked_causal_conv1d",
        "npu_masked_causal_conv1d_backward",
        "npu_recurrent_gated_delta_rule",
        "npu_recurrent_gated_delta_rule_functional",
    ),
    "rotated_caches": ("npu_qkv_rms_norm_rope_cache",),
    "routing": ("npu_moe_gating_top_k",),
    "softmaxes": (
        "npu_attn_softmax_",
        "npu_attn_softmax_backward_",
        "npu_masked_softmax_with_rel_pos_bias",
    ),
    "sparse_attention": (
        "npu_lightning_indexer",
        "npu_quant_lightning_indexer",
        "npu_sparse_flash_attention",
        "npu_sparse_flash_attention_grad",
    ),
}
OPERATORS: dict[str, str] = {name: family for family, names in FAMILIES.items() for name in names}


class _NpuNamespace(_OpNamespace):
    r"""``torch.ops.npu``: imports an operator's family when the operator is looked up."""

    # Operators are named after their namespace's module, and torch.fx writes torch.ops for this one.
    __module__ = _OpNamespace.__module__

    def __getattr__(self, op_name):
        family = OPERATORS.get(op_name)
        if family is not None:
            importlib.import_module(f"{__name__}.{family}")
        return super().__getattr__(op_name)

    def __dir__(self):
        return sorted({*super().__dir__(), *OPERATORS})


def attach() -> None:
    r"""Makes ``torch.ops.npu`` the namespace that knows the operators of this package."""
    torch.ops.npu = _NpuNamespace("npu")  # type: ignore[attr-defined]
