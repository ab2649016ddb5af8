#!/usr/bin/env python3
"""An operator written in Python, registered through torch.library: kernel, Meta, gradient; then checked and used.

rms_scale(x, weight, eps) = x / sqrt(mean(x^2, -1) + eps) * weight, x of shape [..., n], weight of shape [n].
"""

import argparse

import torch


@torch.library.custom_op("npu_example_py::rms_scale", mutates_args=(), device_types="npu")
def rms_scale(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The kernel for npu: everything in it runs on the device."""
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True).add_(eps))
    return (x * scale).mul_(weight)


@rms_scale.register_kernel("cpu")
def _(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


@rms_scale.register_fake
def _(x, weight, eps):
    torch._check(weight.dim() == 1 and weight.shape[0] == x.shape[-1], lambda: "weight must be [x.shape[-1]]")
    return torch.empty_like(x)


def _setup(ctx, inputs, output):
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx, grad):
    x, weight = ctx.saved_tensors
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + ctx.eps)
    unit = x * scale
    gw = grad * weight
    grad_x = scale * (gw - unit * (gw * unit).mean(-1, keepdim=True))
    return grad_x, (grad * unit).flatten(0, -2).sum(0), None


rms_scale.register_autograd(_backward, setup_context=_setup)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="npu:0", help="default: %(default)s")
    device = parser.parse_args().device
    torch.manual_seed(0)
    x = torch.randn(4, 8, dtype=torch.float64, device=device, requires_grad=True)
    weight = torch.randn(8, dtype=torch.float64, device=device, requires_grad=True)
    torch.testing.assert_close(rms_scale(x, weight, 1e-6).cpu(), rms_scale(x.cpu(), weight.cpu(), 1e-6))
    torch.library.opcheck(rms_scale, (x, weight, 1e-6))
    torch.autograd.gradcheck(lambda a, b: rms_scale(a, b, 1e-6), (x, weight))
    compiled = torch.compile(lambda a, b: rms_scale(a, b, 1e-6).sum(), backend="aot_eager", fullgraph=True)
    compiled(x, weight).backward()
    print(f"rms_scale on {x.device}: equal to the CPU, opcheck and gradcheck passed, gradient norm {x.grad.norm():.4f}")


if __name__ == "__main__":
    main()
