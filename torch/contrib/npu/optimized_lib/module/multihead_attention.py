"""Fairseq's multi-head attention over rows of all sequences, as the plug-in has it."""

import math

import torch

from ..function.matmul_transpose import matmul_transpose


def Matmul_transpose(tensor1, tensor2):
    """``tensor1 @ tensor2.transpose(-2, -1)``."""
    return matmul_transpose(tensor1, tensor2)


class _MHAConfig:
    # Scripts set it. On a card it chooses one operator for the whole layer; results are the same.
    use_fussion_mha = False

    @classmethod
    def set_fussion(cls):
        cls.use_fussion_mha = True


class MultiheadAttention(torch.nn.Module):
    """Attention with its projections. Queries, keys and values are matrices: the rows of one sequence after another.

    That is the order of the plug-in's ``npu_multi_head_attention``, which views them as (bsz, positions, heads, width
    of a head); fairseq's own layer has one position of all sequences after another.

    Args:
        embed_dim: width of the queries and of the result.
        num_heads: a divisor of it.
        kdim, vdim: widths of keys and values; default embed_dim.
        dropout: probability of dropping an attention weight.
        bias: whether the projections have one.
        self_attention: keys and values are the queries; widths must be alike.
        encoder_decoder_attention: keys and values come from elsewhere.
        add_bias_kv, add_zero_attn, q_noise: only False, False and 0.
        qn_block_size: of no effect without q_noise.

    Raises:
        NotImplementedError: for what is said to have one value only.
        ValueError: the widths do not fit.
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        kdim=None,
        vdim=None,
        dropout=0.0,
        bias=True,
        add_bias_kv=False,
        add_zero_attn=False,
        self_attention=False,
        encoder_decoder_attention=False,
        q_noise=0.0,
        qn_block_size=8,
    ):
        super().__init__()
        if add_bias_kv or add_zero_attn or q_noise:
            raise NotImplementedError("MultiheadAttention: add_bias_kv, add_zero_attn and q_noise are not supported")
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.qkv_same_dim = self.kdim == embed_dim and self.vdim == embed_dim
        if embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: {num_heads} heads do not divide a width of {embed_dim}")
        if self_attention and not self.qkv_same_dim:
            raise ValueError("MultiheadAttention: with self_attention the widths of keys and values are the queries'")
        self.head_dim = embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.dropout_prob = dropout
        self.self_attention, self.encoder_decoder_attention = self_attention, encoder_decoder_attention
        self.k_proj = torch.nn.Linear(self.kdim, embed_dim, bias=bias)
        self.v_proj = torch.nn.Linear(self.vdim, embed_dim, bias=bias)
        self.q_proj = torch.nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = torch.nn.Linear(embed_dim, embed_dim, bias=bias)
        self.bias_k = self.bias_v = None
        self.onnx_trace = self.tpu = False
        self.batch_size = 1
        self.reset_parameters()

    def prepare_for_onnx_export_(self):
        """Mark the layer as being exported; it computes the same."""
        self.onnx_trace = True

    def prepare_for_tpu_(self, **kwargs):
        """Mark the layer as being for a TPU; it computes the same."""
        self.tpu = True

    def reset_parameters(self):
        """Draw the weights by Xavier's rule, smaller ones where all widths are alike."""
        gain = 1 / math.sqrt(2) if self.qkv_same_dim else 1.0
        for layer in (self.k_proj, self.v_proj, self.q_proj):
            torch.nn.init.xavier_uniform_(layer.weight, gain=gain)
        torch.nn.init.xavier_uniform_(self.out_proj.weight)
        if self.out_proj.bias is not None:
            torch.nn.init.zeros_(self.out_proj.bias)

    def transpose_for_scores(self, x):
        """Rows of ``batch_size`` sequences to (batch, heads, positions, width of a head)."""
        return x.view(self.batch_size, -1, self.num_heads, self.head_dim).transpose(1, 2)

    def apply_sparse_mask(self, attn_weights, tgt_len: int, src_len: int, bsz: int):
        """Return the weights; there is no sparse mask."""
        return attn_weights

    def multi_attn(self, query, key, value, key_padding_mask, bsz, tgt_len):
        """The layer without weights to return; arguments as of :meth:`forward`."""
        return self._fused(query, key, value, key_padding_mask, None, bsz)

    def _mask(self, mask, shape, dtype):
        # What is added to scores of this shape: numbers for all of them, or -inf for keys that are hidden.
        if mask.dtype is torch.bool or mask.shape == (shape[0], shape[3]):
            hidden = mask.bool().view(shape[0], 1, 1, shape[3])
            return torch.zeros_like(hidden, dtype=dtype).masked_fill(hidden, float("-inf"))
        return mask.view(shape) if mask.numel() == math.prod(shape) else mask

    def _projected(self, query, key, value, bsz):
        self.batch_size = bsz
        pairs = (self.q_proj, query), (self.k_proj, key), (self.v_proj, value)
        return [self.transpose_for_scores(layer(x)) for layer, x in pairs]

    def _fused(self, query, key, value, key_padding_mask, attn_mask, bsz):
        # One operator for scores, softmax and product; only the result is to be had.
        q, k, v = self._projected(query, key, value, bsz)
        shape = (bsz, self.num_heads, q.shape[2], k.shape[2])
        masks = [self._mask(mask, shape, q.dtype) for mask in (key_padding_mask, attn_mask) if mask is not None]
        added = None if not masks else sum(masks[1:], masks[0]).to(q.dtype).expand(shape)
        chance = self.dropout_prob if self.training else 0.0
        context = torch.nn.functional.scaled_dot_product_attention(q, k, v, added, chance, scale=self.scaling)
        return self.out_proj(context.transpose(1, 2).reshape(-1, self.embed_dim))

    def _attend(self, query, key, value, key_padding_mask, attn_mask, bsz):
        q, k, v = self._projected(query, key, value, bsz)
        scores = Matmul_transpose(q * self.scaling, k)
        for mask in (key_padding_mask, attn_mask):
            if mask is not None:
                scores = scores + self._mask(mask, scores.shape, scores.dtype)
        weights = torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype)
        dropped = torch.nn.functional.dropout(weights, self.dropout_prob, self.training)
        context = torch.matmul(dropped, v).transpose(1, 2).reshape(-1, self.embed_dim)
        return self.out_proj(context), weights, scores, v

    def forward(
        self,
        query,
        key: torch.Tensor | None,
        value: torch.Tensor | None,
        bsz,
        tgt_len,
        s_len,
        key_padding_mask: torch.Tensor | None = None,
        incremental_state: dict[str, dict[str, torch.Tensor | None]] | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: torch.Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the result, of shape (bsz * tgt_len, embed_dim), and None, or what was asked for.

        Args:
            query: of shape (bsz * tgt_len, embed_dim).
            key, value: of shape (bsz * s_len, width); None: the queries.
            bsz, tgt_len, s_len: sequences, and their queries and keys.
            key_padding_mask: bool, of shape (bsz, s_len): True hides a key; or numbers that are added to the scores,
                as many as there are of these.
            need_weights: of no effect, as in the plug-in's fused layer.
            attn_mask: added to the scores, of shape (tgt_len, s_len).
            before_softmax: return the scores and the values instead.
            need_head_weights: return the weights of all heads, (heads, bsz, tgt_len, s_len), too.
            incremental_state, static_kv: only None and False.

        Raises:
            NotImplementedError: for what is said to have one value only.
        """
        if incremental_state is not None or static_kv:
            raise NotImplementedError("MultiheadAttention: incremental_state and static_kv are not supported")
        key = query if key is None else key
        value = key if value is None else value
        if not before_softmax and not need_head_weights:
            return self._fused(query, key, value, key_padding_mask, attn_mask, bsz), None
        result, weights, scores, v = self._attend(query, key, value, key_padding_mask, attn_mask, bsz)
        if before_softmax:
            return scores, v
        return result, weights.transpose(0, 1) if need_head_weights else None

    def upgrade_state_dict_named(self, state_dict, name):
        """Split the joint projection of older checkpoints (``in_proj_weight``) into three."""
        prefix = f"{name}." if name else ""
        for kind in ("weight", "bias"):
            joint = state_dict.pop(f"{prefix}in_proj_{kind}", None)
            if joint is not None:
                for part, values in zip("qkv", joint.chunk(3), strict=True):
                    state_dict[f"{prefix}{part}_proj.{kind}"] = values
