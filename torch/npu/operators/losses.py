r"""Losses, the sampling of tokens, and steps of an optimizer."""

import torch
from torch import Tensor

from ._attention import wide
from ._checks import FLOATING, check, check_dtype, check_none
from ._registration import operator

_HALF = (torch.float16, torch.bfloat16)
_INTEGERS = (torch.int32, torch.int64)


def _bits(device: torch.device) -> Tensor:
    r"""What the bits of a byte are worth, of which the first is the greatest."""
    return torch.pow(2, torch.arange(7, -1, -1, device=device)).to(torch.uint8)


@operator(
    "npu_fused_linear_online_max_sum(Tensor input, Tensor weight, Tensor target, int vocab_start_index, "
    "int vocab_end_index, bool return_logits=False) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def npu_fused_linear_online_max_sum(
    input, weight, target, vocab_start_index, vocab_end_index, return_logits=False
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""
    The part of a cross entropy over a vocabulary of several devices that each makes before they exchange numbers.

    Args:
        input: (tokens, width), float16 or bfloat16.
        weight: (words, width), of its dtype.
        target: (tokens), int32 or int64.
        vocab_start_index: the first word of this device.
        vocab_end_index: its last word.
        return_logits: whether the last result is wanted.

    Returns:
        The greatest score of each token, the sum of the exponentials of its scores less that, and the score of its
        target less that, 0 for a target of another device; all float32. Which targets are of another device, a bit
        each, the first one in the greatest bit of a byte, uint8, filled up with ones; the targets counted from
        the first word, 0 for those of other devices; the scores, (tokens, words), of the dtype of ``input``, or an
        empty tensor.

    Raises:
        RuntimeError: for shapes, dtypes and indices that do not fit.
    """
    name = "npu_fused_linear_online_max_sum"
    check_dtype(name, "input", input, _HALF)
    check_dtype(name, "weight", weight, (input.dtype,))
    check_dtype(name, "target", target, _INTEGERS)
    check(
        input.dim() == 2
        and weight.dim() == 2
        and input.shape[1] == weight.shape[1]
        and target.shape == input.shape[:1],
        name,
        f"input, weight and target must be (tokens, width), (words, width) and (tokens), but are {tuple(input.shape)}, "
        f"{tuple(weight.shape)} and {tuple(target.shape)}",
    )
    check(
        0 <= vocab_start_index <= vocab_end_index,
        name,
        f"vocab_start_index must be 0 to vocab_end_index, {vocab_end_index}, but is {vocab_start_index}",
    )
    check(
        vocab_end_index < vocab_start_index + weight.shape[0],
        name,
        f"vocab_end_index must be less than {vocab_start_index + weight.shape[0]}, but is {vocab_end_index}",
    )
    scores = wide(input) @ wide(weight).t()
    top = scores.amax(-1)
    less = scores - top.unsqueeze(-1)
    elsewhere = (target < vocab_start_index) | (target > vocab_end_index)
    masked = (target - vocab_start_index).masked_fill(elsewhere, 0)
    predicted = less.gather(1, masked.long().unsqueeze(1)).squeeze(1).masked_fill(elsewhere, 0)
    padded = torch.nn.functional.pad(elsewhere.to(torch.uint8), (0, -input.shape[0] % 8), value=1)
    mask = (padded.view(-1, 8) * _bits(input.device)).sum(1, dtype=torch.uint8)
    logits = scores.to(input.dtype) if return_logits else input.new_empty(0)
    return top, less.exp().sum(-1), predicted, mask, masked, logits


@operator(
    "npu_fused_cross_entropy_loss_with_max_sum(Tensor logits_max, Tensor sum_exp_logits, Tensor predicted_logits, *, "
    "float? label_smoothing=0.0, Tensor? input=None, Tensor? weight=None, Tensor? vocab_parallel_logits=None) -> "
    "(Tensor, Tensor)"
)
def npu_fused_cross_entropy_loss_with_max_sum(
    logits_max,
    sum_exp_logits,
    predicted_logits,
    *,
    label_smoothing=0.0,
    input=None,
    weight=None,
    vocab_parallel_logits=None,
) -> tuple[Tensor, Tensor]:
    r"""
    The cross entropy from what :func:`npu_fused_linear_online_max_sum` makes, after devices exchanged it.

    Args:
        logits_max: (tokens), float32.
        sum_exp_logits: (tokens), float32.
        predicted_logits: (tokens), float32.
        label_smoothing: must be 0.
        input: must be None.
        weight: must be None.
        vocab_parallel_logits: the scores, (tokens, words), where the second result is wanted.

    Returns:
        The losses, (tokens), float32, and the softmax of the scores, (tokens, words), float32, or an empty tensor.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
        NotImplementedError: for label smoothing, ``input`` and ``weight``.
    """
    name = "npu_fused_cross_entropy_loss_with_max_sum"
    check_none(name, "it is reserved", input=input, weight=weight)
    if label_smoothing:
        raise NotImplementedError(f"{name}: label_smoothing must be 0, but is {label_smoothing}")
    given = (("logits_max", logits_max), ("sum_exp_logits", sum_exp_logits), ("predicted_logits", predicted_logits))
    for argument, tensor in given:
        check_dtype(name, argument, tensor, (torch.float32,))
        check(
            tensor.dim() == 1 and tensor.shape == logits_max.shape,
            name,
            f"{argument} must be {tuple(logits_max.shape)}, but is {tuple(tensor.shape)}",
        )
    loss = sum_exp_logits.log() - predicted_logits
    if vocab_parallel_logits is None:
        return loss, loss.new_empty(0)
    check_dtype(name, "vocab_parallel_logits", vocab_parallel_logits, FLOATING)
    check(
        vocab_parallel_logits.dim() == 2 and vocab_parallel_logits.shape[0] == logits_max.shape[0],
        name,
        f"vocab_parallel_logits must be ({logits_max.shape[0]}, words), but is {tuple(vocab_parallel_logits.shape)}",
    )
    scaled = torch.exp(vocab_parallel_logits.float() - logits_max.unsqueeze(-1))
    return loss, scaled / sum_exp_logits.unsqueeze(-1)


@operator(
    "npu_fused_linear_cross_entropy_loss_with_max_sum_backward(Tensor grad, Tensor input, Tensor weight, "
    "Tensor target_mask, Tensor masked_target, float label_smoothing=0.0, Tensor? logits_max=None, "
    "Tensor? sum_exp_logits=None, Tensor? softmax=None) -> (Tensor, Tensor)"
)
def npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
    grad,
    input,
    weight,
    target_mask,
    masked_target,
    label_smoothing=0.0,
    logits_max=None,
    sum_exp_logits=None,
    softmax=None,
) -> tuple[Tensor, Tensor]:
    r"""
    The gradient of a cross entropy over a vocabulary of several devices, of this device's part.

    Args:
        grad: the gradients of the losses, (tokens), float32.
        input: (tokens, width), float16 or bfloat16.
        weight: (words, width), of its dtype, of 128 words at least.
        target_mask: the fourth result of :func:`npu_fused_linear_online_max_sum`.
        masked_target: its fifth result.
        label_smoothing: must be 0.
        logits_max: its first result, after devices exchanged it; needed without ``softmax``.
        sum_exp_logits: its second result, after devices exchanged it; needed without ``softmax``.
        softmax: the second result of :func:`npu_fused_cross_entropy_loss_with_max_sum`.

    Returns:
        The gradients of ``input`` and ``weight``.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
        NotImplementedError: for label smoothing.
    """
    name = "npu_fused_linear_cross_entropy_loss_with_max_sum_backward"
    if label_smoothing:
        raise NotImplementedError(f"{name}: label_smoothing must be 0, but is {label_smoothing}")
    check_dtype(name, "input", input, _HALF)
    check_dtype(name, "weight", weight, (input.dtype,))
    check_dtype(name, "masked_target", masked_target, _INTEGERS)
    check_dtype(name, "target_mask", target_mask, (torch.uint8,))
    tokens = input.shape[0]
    check(weight.shape[0] >= 128, name, f"weight must have 128 words or more, but is {tuple(weight.shape)}")
    check(
        grad.shape == (tokens,) and masked_target.shape == (tokens,) and target_mask.numel() * 8 >= tokens,
        name,
        f"grad, masked_target and target_mask must be of {tokens} tokens, but are {tuple(grad.shape)}, "
        f"{tuple(masked_target.shape)} and {tuple(target_mask.shape)}",
    )
    if softmax is None:
        check(
            logits_max is not None and sum_exp_logits is not None,
            name,
            "logits_max and sum_exp_logits are needed without softmax",
        )
        scores = wide(input) @ wide(weight).t()
        softmax = torch.exp(scores - logits_max.unsqueeze(-1)) / sum_exp_logits.unsqueeze(-1)
    elsewhere = ((target_mask.unsqueeze(1) & _bits(input.device)) != 0).flatten()[:tokens]
    here = (~elsewhere).to(softmax.dtype).unsqueeze(1)
    scores_grad = softmax.scatter_add(1, masked_target.long().unsqueeze(1), -here) * grad.unsqueeze(-1)
    return (scores_grad @ wide(weight)).to(input.dtype), (scores_grad.t() @ wide(input)).to(weight.dtype)


@operator("npu_top_k_top_p(Tensor logits, Tensor? p=None, Tensor? k=None) -> Tensor")
def npu_top_k_top_p(logits, p=None, k=None) -> Tensor:
    r"""
    Hides the scores that are not among the k greatest, then those below the probability p of the rest.

    Args:
        logits: (rows, words), float16, bfloat16 or float32.
        p: (rows), of the dtype of ``logits``, 0 to 1; None: all.
        k: (rows), int32, 1 to the words; None: all. Of scores that are equal to the k-th all stay.

    Returns:
        The scores, -inf where they are hidden; one stays in each row.

    Raises:
        RuntimeError: for shapes and dtypes that do not fit.
    """
    name = "npu_top_k_top_p"
    check_dtype(name, "logits", logits, FLOATING)
    check(logits.dim() == 2, name, f"logits must have two dimensions, but is {tuple(logits.shape)}")
    rows, words = logits.shape
    for argument, tensor, dtype in (("p", p, logits.dtype), ("k", k, torch.int32)):
        if tensor is not None:
            check_dtype(name, argument, tensor, (dtype,))
            check(tensor.shape == (rows,), name, f"{argument} must be ({rows}), but is {tuple(tensor.shape)}")
    ordered, places = torch.sort(logits, dim=-1, stable=True)
    if k is not None:
        threshold = ordered.gather(1, (words - k.long()).unsqueeze(1))
        ordered = ordered.masked_fill(ordered < threshold, float("-inf"))
    if p is not None:
        below = torch.softmax(ordered.float(), -1).cumsum(-1) <= 1 - p.float().unsqueeze(1)
        last = torch.arange(words, device=logits.device) == words - 1
        ordered = ordered.masked_fill(below & ~last, float("-inf"))
    return torch.empty_like(logits).scatter(1, places, ordered)


@operator("npu_sim_exponential_(Tensor(a!) self, float lambd=1, *, Generator? generator=None) -> Tensor(a!)")
def npu_sim_exponential_(self, lambd=1, *, generator=None) -> Tensor:
    r"""
    Fills a tensor with numbers of the exponential distribution.

    Args:
        self: float16, bfloat16 or float32; is written.
        lambd: the rate, above 0.
        generator: of the device; its own one by default.

    Returns:
        ``self``.
    """
    check_dtype("npu_sim_exponential_", "self", self, FLOATING)
    return self.exponential_(lambd, generator=generator)


@operator("npu_renorm_backward(Tensor grad, Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor")
def npu_renorm_backward(grad, self, p, dim, maxnorm) -> Tensor:
    r"""
    The gradient of ``torch.renorm``.

    Args:
        grad: the gradient of its result.
        self: as there.
        p: as there, finite.
        dim: as there.
        maxnorm: as there.

    Returns:
        The gradient of ``self``.

    Raises:
        NotImplementedError: for an infinite ``p``.
    """
    if p == float("inf"):
        raise NotImplementedError("npu_renorm_backward: p must be finite")
    x, dy = wide(self), wide(grad)
    over = [d for d in range(self.dim()) if d != dim % self.dim()]
    norm = torch.linalg.vector_norm(x, p, over, keepdim=True)
    inverse = 1 / (norm + 1e-7)
    along = (x * dy).sum(over, keepdim=True)
    power = x.sign() if p == 1 else x.sign() * x.abs().pow(p - 1) / norm.pow(p - 1)
    power = power.masked_fill(norm == 0, 0)
    scaled = maxnorm * inverse * (dy - power * along * inverse)
    return torch.where(norm > maxnorm, scaled, dy).to(self.dtype)


@operator(
    "npu_binary_cross_entropy_with_logits_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight_opt, "
    "Tensor? pos_weight_opt, int reduction) -> Tensor"
)
def npu_binary_cross_entropy_with_logits_backward(
    grad_output, self, target, weight_opt, pos_weight_opt, reduction
) -> Tensor:
    r"""
    The gradient of ``torch.nn.functional.binary_cross_entropy_with_logits``.

    Args:
        grad_output: the gradient of its result.
        self: the scores.
        target: as there.
        weight_opt: ``weight`` there.
        pos_weight_opt: ``pos_weight`` there.
        reduction: 0: none; 1: mean; 2: sum.

    Returns:
        The gradient of the scores.
    """
    name = "npu_binary_cross_entropy_with_logits_backward"
    check(reduction in (0, 1, 2), name, f"reduction must be 0, 1 or 2, but is {reduction}")
    probability, wanted = torch.sigmoid(wide(self)), wide(target)
    if pos_weight_opt is None:
        slope = probability - wanted
    else:
        positive = wide(pos_weight_opt) * wanted
        slope = (positive + 1 - wanted) * probability - positive
    if weight_opt is not None:
        slope = slope * wide(weight_opt)
    slope = slope * wide(grad_output)
    return (slope / self.numel() if reduction == 1 else slope).to(self.dtype)


_ADAM_W = (
    "Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar weight_decay, Scalar beta1, Scalar beta2, "
    "Scalar epsilon, Tensor grad, Tensor? max_grad_norm, bool? amsgrad, bool? maximize"
)


@operator(f"npu_apply_adam_w({_ADAM_W}) -> (Tensor, Tensor, Tensor)")
def npu_apply_adam_w(
    beta1_power, beta2_power, lr, weight_decay, beta1, beta2, epsilon, grad, max_grad_norm, amsgrad, maximize
) -> tuple[Tensor, Tensor, Tensor]:
    r"""
    A step of AdamW, in place; ``out`` takes the tuple (var, m, v).

    Args:
        beta1_power: ``beta1`` to the power of the steps before this one.
        beta2_power: ``beta2`` to that power.
        lr: the learning rate.
        weight_decay: how much of ``var`` goes with each unit of ``lr``.
        beta1: how much of ``m`` stays.
        beta2: how much of ``v`` stays.
        epsilon: added to the root of the second moment.
        grad: float16, bfloat16 or float32.
        max_grad_norm: without effect without ``amsgrad``.
        amsgrad: must be None or False.
        maximize: whether ``grad`` is negated.
        var: the parameter, of the shape of ``grad``; is written.
        m: its first moment; is written.
        v: its second moment; is written.

    Returns:
        ``var``, ``m`` and ``v``.

    Raises:
        RuntimeError: for shapes that do not fit.
        NotImplementedError: without ``out``, and for ``amsgrad``.
    """
    raise NotImplementedError("npu_apply_adam_w: out must be given: (var, m, v)")


@operator(
    f"npu_apply_adam_w.out({_ADAM_W}, *, Tensor(a!) var, Tensor(b!) m, Tensor(c!) v) -> "
    "(Tensor(a!), Tensor(b!), Tensor(c!))"
)
def npu_apply_adam_w_out(
    beta1_power,
    beta2_power,
    lr,
    weight_decay,
    beta1,
    beta2,
    epsilon,
    grad,
    max_grad_norm,
    amsgrad,
    maximize,
    *,
    var,
    m,
    v,
) -> tuple[Tensor, Tensor, Tensor]:
    name = "npu_apply_adam_w"
    if amsgrad:
        raise NotImplementedError(f"{name}: amsgrad must be False")
    check_dtype(name, "grad", grad, FLOATING)
    for argument, tensor in (("var", var), ("m", m), ("v", v)):
        check_dtype(name, argument, tensor, FLOATING)
        check(
            tensor.shape == grad.shape,
            name,
            f"{argument} must have the shape of grad, {tuple(grad.shape)}, but is {tuple(tensor.shape)}",
        )
    slope = -grad.float() if maximize else grad.float()
    first = m.float() * beta1 + slope * (1 - beta1)
    second = v.float() * beta2 + slope.square() * (1 - beta2)
    divisor = (second / (1 - beta2_power * beta2)).sqrt() + epsilon
    step = first / (1 - beta1_power * beta1) / divisor
    var.copy_(var.float() * (1 - lr * weight_decay) - lr * step)
    m.copy_(first)
    v.copy_(second)
    return var, m, v
