"""Inference with weights of eight or four bits; activations stay as they are.

    python examples/llm/train.py --steps 200 && python examples/llm/quantized.py

On npu the layers call npu_weight_quant_batchmatmul, on the CPU they restore the weights and multiply. Prints, for each
device and form, memory of the weights, loss on held-out text, bytes a second.
"""

import argparse
import sys
from pathlib import Path

import corpus
import torch_npu
from generate import DTYPES, PROMPTS, generate, make_cache
from llama import Llama, default_attention
from train import CHECKPOINT, measure, restore

import torch
from torch import Tensor, nn

GROUP = 32  # rows of a four-bit weight that share a scale


def pack_int4(codes: Tensor) -> Tensor:
    """(k, n) integers of -8 to 7 on npu as the device multiplies them: int32 of shape (k, n / 8)."""
    return torch_npu.npu_convert_weight_to_int4pack(codes.int().contiguous())


class WeightOnlyLinear(nn.Module):
    """A linear layer without bias whose weight is rounded to `bits` bits: codes of int8, or packed ones, and scales.

    Args:
        linear: the layer it is made of; its device and dtype stay.
        bits: 8, with a scale for each output, or 4, with one for each `group` inputs of each output.
        group: a divisor of the inputs, with four bits; outputs must be a multiple of eight.
    """

    def __init__(self, linear: nn.Linear, bits: int, group: int = GROUP) -> None:
        super().__init__()
        weight = linear.weight.detach().t().float()  # (inputs, outputs)
        k, n = weight.shape
        if bits not in (4, 8) or linear.bias is not None:
            raise ValueError("wants 4 or 8 bits, and a layer without bias")
        if bits == 4 and (k % group or n % 8):
            raise ValueError(f"four bits want inputs in groups of {group}, outputs of eight; the weight is {k} x {n}")
        self.bits, self.group = bits, group if bits == 4 else 0
        rows = weight.unflatten(0, (-1, group)) if bits == 4 else weight.unsqueeze(0)  # (groups, rows, outputs)
        largest = 2 ** (bits - 1) - 1
        scale = (rows.abs().amax(1, keepdim=True) / largest).clamp_min(1e-8).to(linear.weight.dtype)
        codes = (rows / scale.float()).round().clamp(-largest - 1, largest).flatten(0, 1).to(torch.int8)
        packed = bits == 4 and codes.device.type == "npu"
        self.register_buffer("codes", pack_int4(codes) if packed else codes)
        self.register_buffer("scale", scale.squeeze(1))

    @property
    def bytes(self) -> int:
        """Of codes and scales as they lie in memory; four-bit codes are not packed on the CPU."""
        return sum(b.numel() * b.element_size() for b in (self.codes, self.scale))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if x.device.type == "npu":
            y = torch_npu.npu_weight_quant_batchmatmul(rows, self.codes, self.scale, antiquant_group_size=self.group)
        else:
            groups = self.codes.unflatten(0, (len(self.scale), -1)).to(x.dtype)
            y = rows @ (groups * self.scale.unsqueeze(1)).flatten(0, 1)
        return y.unflatten(0, x.shape[:-1])


def quantize(model: Llama, bits: int) -> Llama:
    """Every linear layer of the blocks; embedding and head, where rounding hurts most, stay."""
    for module in list(model.blocks.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, WeightOnlyLinear(child, bits))
    return model


def weight_bytes(model: Llama) -> int:
    """Memory of the blocks' linear layers."""
    layers = [m for m in model.blocks.modules() if isinstance(m, (nn.Linear, WeightOnlyLinear))]
    return sum(m.bytes if isinstance(m, WeightOnlyLinear) else m.weight.nbytes for m in layers)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="(default: %(default)s)")
    parser.add_argument("--device", choices=("npu", "cpu", "both"), default="both", help="(default: %(default)s)")
    parser.add_argument("--dtype", choices=DTYPES, default="float16", help="of activations (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="bytes to make for the rate (default: %(default)s)")
    args = parser.parse_args(argv)
    kept, dtype = corpus.load()[1], DTYPES[args.dtype]
    prompts = [text.encode() for text in PROMPTS]
    for device in ("cpu", "npu") if args.device == "both" else (args.device,):
        for bits in (None, 8, 4):
            model = restore(args.checkpoint, device, default_attention(device)).to(dtype)
            if bits:
                quantize(model, bits)
            loss = measure(model, kept, device)
            for _ in range(2):  # the first run compiles operators, and does not count
                cache = make_cache("static", model, prompts, args.tokens, 16, dtype)
                answer = generate(model, prompts, args.tokens, cache)
            name = f"int{bits}" if bits else args.dtype
            print(
                f"{device} {name:8} weights {weight_bytes(model) / 1024:7.0f} KiB, loss {loss:.4f}, "
                f"{answer.rate:7.1f} bytes/s",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
