r"""Hyper-connections that are constrained to a manifold (mHC): what mixes the streams of a layer."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import check, check_dtype
from ._registration import operator

_HALF = (torch.float16, torch.bfloat16)
_STREAMS = (4, 6, 8)


@operator(
    "npu_mhc_pre(Tensor x, Tensor phi, Tensor alpha, Tensor bias, *, Tensor? gamma=None, float norm_eps=1e-6, "
    "float hc_eps=1e-6, int out_flag=0, int inner_precise=0) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_mhc_pre(
    x, phi, alpha, bias, *, gamma=None, norm_eps=1e-6, hc_eps=1e-6, out_flag=0, inner_precise=0
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    What a layer gets of its streams, and the factors that its result goes back with.

    Args:
        x: (batch, tokens, n, width) or (tokens, n, width), float16 or bfloat16; n streams, 4, 6 or 8.
        phi: (n * n + 2 n, n * width), float32: rows for the factors of the layer's input (n), of its result (n), and of
            the streams among each other (n * n).
        alpha: (3), float32: the scales of the three.
        bias: (n * n + 2 n), float32.
        gamma: (n, width), float32: factors of the norm over all streams of a token.
        norm_eps: added to the mean of squares.
        hc_eps: added to the factors of the input.
        out_flag: must be 0.
        inner_precise: 0 or 1; without effect.

    Returns:
        The layer's input, (..., width), of the dtype of ``x``; the factors of its result, (..., n), float32; those of
        the streams, (..., n, n), float32; three empty tensors.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
        NotImplementedError: for ``out_flag`` 1 and two scales, whose results are not documented in full.
    """
    name = "npu_mhc_pre"
    check_dtype(name, "x", x, _HALF)
    check(
        x.dim() in (3, 4) and x.shape[-2] in _STREAMS, name, f"x must have 4, 6 or 8 streams, but is {tuple(x.shape)}"
    )
    streams, width = x.shape[-2:]
    rows = streams * streams + 2 * streams
    if out_flag != 0:
        raise NotImplementedError(f"{name}: out_flag must be 0: h_mix is not documented in full")
    if tuple(alpha.shape) == (2,):
        raise NotImplementedError(f"{name}: alpha of two scales has a third result that is not documented in full")
    check(inner_precise in (0, 1), name, f"inner_precise must be 0 or 1, but is {inner_precise}")
    for argument, tensor, shape in (
        ("phi", phi, (rows, streams * width)),
        ("alpha", alpha, (3,)),
        ("bias", bias, (rows,)),
        ("gamma", gamma, (streams, width)),
    ):
        if tensor is not None:
            check_dtype(name, argument, tensor, (torch.float32,))
            check(tuple(tensor.shape) == shape, name, f"{argument} must be {shape}, but is {tuple(tensor.shape)}")
    plain = wide(x)
    flat = plain.flatten(-2)
    normalised = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + norm_eps)
    if gamma is not None:
        normalised = normalised * gamma.flatten()
    mixed = normalised @ phi.t()
    parts = (streams, streams, streams * streams)
    before, behind, among = (
        scale * part + added
        for scale, part, added in zip(alpha.unbind(0), mixed.split(parts, -1), bias.split(parts), strict=True)
    )
    before = torch.sigmoid(before) + hc_eps
    into = (before.unsqueeze(-1) * plain).sum(-2)
    empty = before.new_empty(0)
    return (
        into.to(x.dtype),
        2 * torch.sigmoid(behind),
        among.unflatten(-1, (streams, streams)),
        empty,
        empty.clone(),
        empty.clone(),
    )


@operator(
    "npu_mhc_pre_backward(Tensor x, Tensor phi, Tensor alpha, Tensor grad_h_in, Tensor grad_h_post, "
    "Tensor grad_h_res, Tensor inv_rms, Tensor h_mix, Tensor h_pre, Tensor h_post, Tensor? gamma=None, "
    "float hc_eps=1e-6, Tensor? grad_x_post=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_mhc_pre_backward(
    x,
    phi,
    alpha,
    grad_h_in,
    grad_h_post,
    grad_h_res,
    inv_rms,
    h_mix,
    h_pre,
    h_post,
    gamma=None,
    hc_eps=1e-6,
    grad_x_post=None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_mhc_pre`.

    Args:
        x: as there.
        phi: as there.
        alpha: (3), as there.
        grad_h_in: the gradient of the layer's input, (..., width).
        grad_h_post: that of the factors of its result, (..., n), float32.
        grad_h_res: that of the factors of the streams, (..., n, n), float32.
        inv_rms: the norm's factor of each token, (...), float32.
        h_mix: (x * gamma) @ phi' before the norm's factor, (..., n * n + 2 n), float32.
        h_pre: the factors of the layer's input, ``hc_eps`` included, (..., n), float32.
        h_post: those of its result, (..., n), float32.
        gamma: as there.
        hc_eps: as there.
        grad_x_post: added to the gradient of ``x``; like it.

    Returns:
        The gradients of ``x``, ``phi``, ``alpha``, the bias, and ``gamma`` (an empty tensor without it).

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
    """
    name = "npu_mhc_pre_backward"
    check_dtype(name, "x", x, _HALF)
    check(
        x.dim() in (3, 4) and x.shape[-2] in _STREAMS, name, f"x must have 4, 6 or 8 streams, but is {tuple(x.shape)}"
    )
    streams, width = x.shape[-2:]
    lead, rows = x.shape[:-2], streams * streams + 2 * streams
    for argument, tensor, shape in (
        ("phi", phi, (rows, streams * width)),
        ("alpha", alpha, (3,)),
        ("grad_h_in", grad_h_in, (*lead, width)),
        ("grad_h_post", grad_h_post, (*lead, streams)),
        ("grad_h_res", grad_h_res, (*lead, streams, streams)),
        ("h_mix", h_mix, (*lead, rows)),
        ("h_pre", h_pre, (*lead, streams)),
        ("h_post", h_post, (*lead, streams)),
        ("gamma", gamma, (streams, width)),
        ("grad_x_post", grad_x_post, x.shape),
    ):
        if tensor is not None:
            check(
                tuple(tensor.shape) == tuple(shape),
                name,
                f"{argument} must be {tuple(shape)}, but is {tuple(tensor.shape)}",
            )
    check(inv_rms.numel() == lead.numel(), name, f"inv_rms must be {tuple(lead)}, but is {tuple(inv_rms.shape)}")
    plain, dinto = wide(x), wide(grad_h_in).unsqueeze(-2)
    factor = inv_rms.reshape(*lead, 1)
    gate = h_pre - hc_eps
    parts = (streams, streams, streams * streams)
    # Gradients of what stands before the biases, then of what the scales multiply.
    dsums = torch.cat(
        [
            (dinto * plain).sum(-1) * gate * (1 - gate),
            grad_h_post * h_post * (1 - h_post / 2),
            grad_h_res.flatten(-2),
        ],
        -1,
    )
    scaled = h_mix * factor
    dalpha = torch.stack([part.sum() for part in (dsums * scaled).split(parts, -1)])
    scales = torch.cat([a.expand(n) for a, n in zip(alpha.unbind(0), parts, strict=True)])
    dscaled = dsums * scales
    dmix = dscaled * factor
    flat = plain.flatten(-2)
    weighted = flat if gamma is None else flat * gamma.flatten()
    dphi = dmix.flatten(0, -2).t() @ weighted.flatten(0, -2)
    dweighted = dmix @ phi
    dfactor = (dscaled * h_mix).sum(-1, keepdim=True)
    dflat = dweighted if gamma is None else dweighted * gamma.flatten()
    dflat = dflat - dfactor * factor**3 / (streams * width) * flat
    dx = dflat.unflatten(-1, (streams, width)) + dinto * h_pre.unsqueeze(-1)
    if grad_x_post is not None:
        dx = dx + wide(grad_x_post)
    outer = tuple(range(len(lead)))
    dgamma = dphi.new_empty(0) if gamma is None else (dweighted * flat).sum(outer).view(streams, width)
    return dx.to(x.dtype), dphi, dalpha, dsums.sum(outer), dgamma


def _check_post(name: str, x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor) -> None:
    check_dtype(name, "x", x, _HALF)
    check_dtype(name, "h_out", h_out, (x.dtype,))
    streams = x.shape[-2]
    for argument, tensor, shape in (
        ("h_res", h_res, (*x.shape[:-1], streams)),
        ("h_out", h_out, (*x.shape[:-2], x.shape[-1])),
        ("h_post", h_post, x.shape[:-1]),
    ):
        if tensor is not None:
            if argument != "h_out":
                check_dtype(name, argument, tensor, (torch.float32,))
            check(
                tuple(tensor.shape) == tuple(shape),
                name,
                f"{argument} must be {tuple(shape)}, but is {tuple(tensor.shape)}",
            )


@operator("npu_mhc_post(Tensor x, Tensor? h_res, Tensor h_out, Tensor h_post) -> Tensor")
def npu_mhc_post(x, h_res, h_out, h_post) -> Tensor:
    r"""
    The streams behind a layer: those before it, mixed, and its result with a factor for each.

    Args:
        x: (batch, tokens, n, width) or (tokens, n, width), float16 or bfloat16.
        h_res: (..., n, n), float32: each row makes a stream; None: the streams stay as they are.
        h_out: the layer's result, (..., width), of the dtype of ``x``.
        h_post: (..., n), float32.

    Returns:
        The streams, of the shape and dtype of ``x``.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
    """
    _check_post("npu_mhc_post", x, h_res, h_out, h_post)
    kept = wide(x) if h_res is None else h_res @ wide(x)
    return (kept + h_post.unsqueeze(-1) * wide(h_out).unsqueeze(-2)).to(x.dtype)


@operator(
    "npu_mhc_post_backward(Tensor grad_y, Tensor x, Tensor? h_res, Tensor h_out, Tensor h_post) -> "
    "(Tensor, Tensor, Tensor, Tensor)"
)
def npu_mhc_post_backward(grad_y, x, h_res, h_out, h_post) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""
    The gradient of :func:`npu_mhc_post`.

    Args:
        grad_y: the gradient of its result.
        x: as there.
        h_res: as there.
        h_out: as there.
        h_post: as there.

    Returns:
        The gradients of ``x``, ``h_res`` (an empty tensor without it), ``h_out`` and ``h_post``.
    """
    _check_post("npu_mhc_post_backward", x, h_res, h_out, h_post)
    dy, plain = wide(grad_y), wide(x)
    dx = dy if h_res is None else h_res.transpose(-1, -2) @ dy
    dres = dy.new_empty(0) if h_res is None else dy @ plain.transpose(-1, -2)
    dout = (h_post.unsqueeze(-1) * dy).sum(-2)
    return dx.to(x.dtype), dres, dout.to(h_out.dtype), (dy * wide(h_out).unsqueeze(-2)).sum(-1)


@operator(
    "npu_mhc_sinkhorn(Tensor x, *, float eps=1e-6, SymInt num_iters=20, int out_flag=0) -> (Tensor, Tensor, Tensor)"
)
def npu_mhc_sinkhorn(x, *, eps=1e-6, num_iters=20, out_flag=0) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    Makes matrices doubly stochastic: the softmax of the rows, then columns and rows divided by their sums in turn.

    Args:
        x: (..., n, n), float32; n is 4, 6 or 8.
        eps: added to the softmax and to each sum.
        num_iters: 1 to 100; the first one divides columns alone.
        out_flag: 1: the last two results are wanted.

    Returns:
        The matrices, of the shape of ``x``; what every division gave, the softmax first, (2 * num_iters, n, n, ...);
        the sums, (2 * num_iters, n, ...), of which the first ones are 0; empty tensors unless they are wanted.

    Raises:
        RuntimeError: for shapes, dtypes and numbers that do not fit.
    """
    name = "npu_mhc_sinkhorn"
    check_dtype(name, "x", x, (torch.float32,))
    check(
        x.dim() in (3, 4) and x.shape[-1] == x.shape[-2] and x.shape[-1] in _STREAMS,
        name,
        f"x must be matrices of 4, 6 or 8 rows and columns, but is {tuple(x.shape)}",
    )
    check(1 <= num_iters <= 100, name, f"num_iters must be 1 to 100, but is {num_iters}")
    norm = torch.softmax(x, -1) + eps
    norms, sums = [norm], [torch.zeros_like(norm[..., 0])]
    for step in range(1, 2 * int(num_iters)):
        over = -2 if step % 2 else -1
        total = norm.sum(over, keepdim=True) + eps
        norm = norm / total
        norms.append(norm)
        sums.append(total.squeeze(over))
    if out_flag == 0:
        return norm, norm.new_empty(0), norm.new_empty(0)
    outer = tuple(range(1, x.dim() - 1))
    stacked, totals = torch.stack(norms), torch.stack(sums)
    return norm, stacked.permute(0, -2, -1, *outer).contiguous(), totals.permute(0, -1, *outer).contiguous()


@operator("npu_mhc_sinkhorn_backward(Tensor grad_y, Tensor norm, Tensor sum) -> Tensor")
def npu_mhc_sinkhorn_backward(grad_y, norm, sum) -> Tensor:
    r"""
    The gradient of :func:`npu_mhc_sinkhorn`.

    Args:
        grad_y: the gradient of its first result.
        norm: its second result.
        sum: its third result.

    Returns:
        The gradient of ``x``.
    """
    name = "npu_mhc_sinkhorn_backward"
    check(
        norm.dim() == grad_y.dim() + 1 and sum.dim() == grad_y.dim() and norm.shape[0] == sum.shape[0],
        name,
        f"norm and sum must be of grad_y, {tuple(grad_y.shape)}, but are {tuple(norm.shape)} and {tuple(sum.shape)}",
    )
    outer = tuple(range(3, norm.dim()))
    norms, sums = norm.permute(0, *outer, 1, 2), sum.permute(0, *(i - 1 for i in outer), 1)
    grad = grad_y
    for step in range(norm.shape[0] - 1, 0, -1):
        over = -2 if step % 2 else -1
        grad = (grad - (grad * norms[step]).sum(over, keepdim=True)) / sums[step].unsqueeze(over)
    # The softmax is what stands before eps, which makes its rows add up to more than 1.
    weights = norms[0] - (norms[0].sum(-1, keepdim=True) - 1) / norms.shape[-1]
    return weights * (grad - (grad * weights).sum(-1, keepdim=True))
