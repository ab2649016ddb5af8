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
    "adapters": (
        "npu_batch_gather_matmul",
        "npu_batch_gather_matmul_",
    ),
    "announced_attention": (
        "_npu_fusion_attention_grad_v3_get_max_workspace",
        "_npu_fusion_attention_grad_v3_infer_output",
        "_npu_fusion_attention_v3_get_max_workspace",
        "_npu_fusion_attention_v3_infer_output",
    ),
    "attention_scores": (
        "npu_fused_attention_score",
        "npu_fused_attention_score_backward",
        "npu_fused_attention_score_fwd",
        "npu_fused_attention_score_grad",
    ),
    "barriers": ("_npu_distribute_barrier",),
    "block_attention": (
        "npu_block_sparse_attention",
        "npu_block_sparse_attention_backward",
    ),
    "block_layers": (
        "_npu_swiglu_backward_mx_quant_with_dual_axis",
        "npu_add_rms_norm_dynamic_mx_quant",
        "npu_rms_norm_dynamic_mx_quant",
        "npu_swiglu_mx_quant_with_dual_axis",
    ),
    "block_numbers": (
        "npu_anti_mx_quant",
        "npu_dynamic_block_mx_quant",
        "npu_dynamic_block_quant",
        "npu_dynamic_dual_level_mx_quant",
        "npu_dynamic_mx_quant",
        "npu_dynamic_mx_quant_with_dual_axis",
    ),
    "box_overlaps": (
        "_npu_ciou",
        "npu_ciou",
        "npu_ciou_backward",
        "npu_diou",
        "npu_diou_backward",
    ),
    "byte_attention": ("npu_kv_quant_sparse_flash_attention",),
    "caches": (
        "npu_advance_step_flashattn",
        "npu_gather_pa_kv_cache",
        "npu_gather_pa_kv_cache_functional",
        "npu_quant_scatter",
        "npu_quant_scatter_",
        "npu_scatter_list",
        "npu_scatter_list_",
        "npu_scatter_pa_cache",
        "npu_scatter_pa_kv_cache",
        "npu_scatter_pa_kv_cache_functional",
    ),
    "collective_products": (
        "npu_all_gather_base_mm",
        "npu_all_to_all_matmul",
        "npu_alltoallv_gmm",
        "npu_gmm_alltoallv",
        "npu_matmul_all_to_all",
        "npu_mm_all_reduce_base",
        "npu_mm_reduce_scatter_base",
    ),
    "compression": (
        "npu_nsa_compress",
        "npu_nsa_compress_grad",
    ),
    "dynamic_products": (
        "npu_quant_grouped_matmul_dequant",
        "npu_quant_matmul_dequant",
    ),
    "expert_choice": (
        "npu_moe_gating_top_k_backward",
        "npu_moe_gating_top_k_softmax_v2",
        "npu_moe_update_expert",
    ),
    "expert_combine": (
        "npu_moe_distribute_combine",
        "npu_moe_distribute_combine_add_rms_norm",
        "npu_moe_distribute_combine_v2",
    ),
    "expert_dispatch": (
        "npu_moe_distribute_dispatch",
        "npu_moe_distribute_dispatch_v2",
    ),
    "expert_maps": (
        "_npu_moe_token_unpermute",
        "_npu_moe_token_unpermute_with_routing_map",
        "npu_moe_token_permute_grad_v2",
        "npu_moe_token_permute_with_routing_map",
        "npu_moe_token_permute_with_routing_map_grad",
        "npu_moe_token_unpermute_grad_v2",
        "npu_moe_token_unpermute_with_routing_map",
        "npu_moe_token_unpermute_with_routing_map_grad",
    ),
    "expert_rows": (
        "npu_moe_init_routing_quant",
        "npu_moe_init_routing_v2",
        "npu_moe_re_routing",
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
    "grouped_numbers": (
        "npu_grouped_dynamic_block_quant",
        "npu_grouped_dynamic_mx_quant",
    ),
    "grouped_products": (
        "npu_ffn",
        "npu_grouped_matmul_add",
        "npu_grouped_matmul_add_",
        "npu_grouped_matmul_finalize_routing",
        "npu_grouped_matmul_swiglu_quant",
        "npu_grouped_matmul_swiglu_quant_v2",
    ),
    "hyper_connections": (
        "npu_mhc_post",
        "npu_mhc_post_backward",
        "npu_mhc_pre",
        "npu_mhc_pre_backward",
        "npu_mhc_sinkhorn",
        "npu_mhc_sinkhorn_backward",
    ),
    "indexer_losses": (
        "npu_dense_lightning_indexer_grad_kl_loss",
        "npu_dense_lightning_indexer_softmax_lse",
        "npu_lightning_indexer_grad",
        "npu_sparse_lightning_indexer_grad_kl_loss",
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
    "matrices": (
        "_npu_dtype_cast",
        "_npu_dtype_cast_backward",
        "_npu_index_add",
        "_npu_index_add_",
        "npu_bmm_v2_mat1_backward",
        "npu_bmm_v2_mat2_backward",
        "npu_dtype_cast_",
        "npu_dtype_cast_backward",
        "npu_fused_matmul",
        "npu_gather_backward",
        "npu_gather_sparse_index",
        "npu_gather_sparse_index_backward",
        "npu_prefetch",
        "npu_view_copy",
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
    "quantised_activations": (
        "npu_clipped_swiglu",
        "npu_dequant_swiglu_quant",
        "npu_gelu_quant",
        "npu_swiglu_quant",
    ),
    "quantised_collectives": (
        "npu_all_gather_quant_mm",
        "npu_all_to_all_quant_matmul",
        "npu_quant_matmul_all_to_all",
        "npu_quant_mm_reduce_scatter",
    ),
    "quantised_experts": (
        "npu_alltoallv_quant_gmm",
        "npu_quant_gmm_alltoallv",
    ),
    "quantised_layers": (
        "npu_kronecker_quant",
        "npu_quant_conv2d",
        "npu_quant_max",
        "npu_rotate_quant",
        "npu_swiglu_mx_quant",
    ),
    "quantised_products": (
        "npu_add_quant_matmul",
        "npu_add_quant_matmul_",
        "npu_convert_weight_to_int4pack",
        "npu_dequant_bias",
        "npu_quant_matmul_gelu",
        "npu_quant_matmul_reduce_sum",
        "npu_transpose_batchmatmul",
        "npu_transpose_quant_batchmatmul",
    ),
    "recurrences": (
        "npu_chunk_gated_delta_rule",
        "npu_fused_causal_conv1d",
        "npu_fused_causal_conv1d_v2",
        "npu_masked_causal_conv1d",
        "npu_masked_causal_conv1d_backward",
        "npu_recurrent_gated_delta_rule",
        "npu_recurrent_gated_delta_rule_functional",
    ),
    "rotated_caches": (
        "npu_qkv_rms_norm_rope_cache",
        "npu_qkv_rms_norm_rope_cache_functional",
    ),
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
    # The list of namespaces, in which torch.export looks for operators to keep whole.
    torch.ops._dir.append("npu")
