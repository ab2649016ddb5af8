"""Checks shared by the tests of neural-network operators: the NPU's fp32 against the CPU's fp64, gradients included.

An operator that falls back to the CPU fails its check.
"""

import torch
import torch.npu


def relative_error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """Return ||value - exact|| / ||exact|| in fp64, or the absolute norm where the exact one is 0."""
    value, exact = value.detach().cpu().to(torch.complex128), exact.detach().cpu().to(torch.complex128)
    difference, scale = torch.linalg.vector_norm(value - exact), torch.linalg.vector_norm(exact)
    return float(difference / scale) if scale > 0 else float(difference)


def run(fn, inputs, device, dtype):
    """Call fn on copies of the inputs; return its tensors and the gradients of those inputs that require them."""
    copies = []
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            copies.append(value)
            continue
        copy = value.detach().to(device, dtype if value.is_floating_point() else value.dtype)
        copies.append(copy.requires_grad_(value.requires_grad))
    outputs = fn(*copies)
    outputs = [o for o in (outputs if isinstance(outputs, (tuple, list)) else [outputs]) if o is not None]
    wanted = [c for c in copies if isinstance(c, torch.Tensor) and c.requires_grad]
    grads = []
    if wanted:
        generator = torch.Generator().manual_seed(1)
        seeds = [torch.randn(o.shape, generator=generator).to(device, o.dtype) for o in outputs if o.requires_grad]
        grads = torch.autograd.grad([o for o in outputs if o.requires_grad], wanted, seeds, allow_unused=True)
    return outputs, [g for g in grads if g is not None]


def check(case, fn, inputs, *, dtype=torch.float32, tolerance=2e-6, exact=torch.float64):
    """Assert that results and gradients on npu in ``dtype`` lie within ``tolerance`` (norm-wise, relative) of the CPU's
    in ``exact``, that shapes agree, that results live on the npu, and that no operator ran on the CPU."""
    want, want_grads = run(fn, inputs, "cpu", exact)
    fallbacks = dict(torch.npu.fallback_stats())
    got, got_grads = run(fn, inputs, "npu", dtype)
    case.assertEqual(dict(torch.npu.fallback_stats()), fallbacks, "operators that ran on the CPU")
    case.assertEqual(len(got), len(want))
    case.assertEqual(len(got_grads), len(want_grads))
    for kind, values, references in (("result", got, want), ("gradient", got_grads, want_grads)):
        for i, (value, reference) in enumerate(zip(values, references, strict=True)):
            case.assertEqual(value.device.type, "npu")
            case.assertEqual(tuple(value.shape), tuple(reference.shape), f"shape of {kind} {i}")
            error = relative_error(value, reference)
            case.assertLess(error, tolerance, f"{kind} {i} of shape {tuple(value.shape)}")


def randn(*shape, grad=True, seed=None):
    """Return fp32 normal numbers on the CPU, asking for a gradient."""
    generator = torch.Generator().manual_seed(seed if seed is not None else sum(shape) + 7 * len(shape))
    return torch.randn(shape, generator=generator).requires_grad_(grad)
