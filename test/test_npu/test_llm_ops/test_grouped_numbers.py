"""Rows in groups with scales for blocks (torch/npu/operators/grouped_numbers.py) against loops over the groups."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests
from test_block_numbers import EMAX, mx

import torch


def grouped_mx(x, ends, *, dst_type=23, scale_alg=0, round_mode="rint", **_):
    """Each group by itself; its pairs of blocks begin at its first row // 64 + its number."""
    dtype = {23: torch.float8_e5m2, 24: torch.float8_e4m3fn, 296: torch.float4_e2m1fn_x2}[dst_type]
    rows, columns = x.shape
    packed = 2 if dst_type == 296 else 1
    numbers = torch.zeros(rows, columns // packed, dtype=torch.double)
    scales = torch.zeros(rows // 64 + len(ends), columns, 2, dtype=torch.double)
    start = 0
    for i, end in enumerate(ends.tolist()):
        if end > start:
            part = x[start:end]
            found, bytes_of = mx(part, 0, dtype, round_mode) if scale_alg == 0 else ceiled(part, dtype)
            numbers[start:end] = found.double()
            scales[start // 64 + i : start // 64 + i + len(bytes_of)] = bytes_of.double()
        start = end
    return numbers, scales


def ceiled(part, dtype):
    """Blocks of 32 rows by the first power of two by which their largest number is none above the dtype's."""
    most = EMAX[dtype][1]
    rows, columns = part.shape
    pairs = -(-rows // 64)
    numbers, powers = torch.zeros(rows, columns, dtype=torch.double), np.zeros((pairs * 2, columns))
    for at in range(0, rows, 32):
        for c in range(columns):
            block = part[at : at + 32, c]
            largest = float(block.abs().max())
            power = -127
            while largest / 2.0**power > most:
                power += 1
            powers[at // 32, c] = power + 127
            numbers[at : at + 32, c] = (block / 2.0**power).float().to(dtype).double()
    return numbers, torch.from_numpy(powers.reshape(pairs, 2, columns).transpose(0, 2, 1).copy())


def grouped_blocks(x, ends, *, min_scale=0.0, dst_type=291, row_block_size=1, col_block_size=128):
    dtype = torch.float8_e5m2 if dst_type == 291 else torch.float8_e4m3fn
    most = EMAX[dtype][1]
    batched = x if x.dim() == 3 else x[None]
    _, rows, columns = batched.shape
    across = -(-columns // col_block_size)
    numbers = torch.zeros_like(batched)
    scales = torch.zeros(len(batched), rows // row_block_size + len(ends), across, dtype=torch.double)
    for b in range(len(batched)):
        start = 0
        for i, end in enumerate(ends.tolist()):
            first = start // row_block_size + i
            for j, at in enumerate(range(start, end, row_block_size)):
                for c in range(across):
                    where = (
                        slice(at, min(at + row_block_size, end)),
                        slice(c * col_block_size, (c + 1) * col_block_size),
                    )
                    block = batched[b][where]
                    scale = float(block.abs().max()) / most
                    scale = min(scale, 1 / min_scale) if min_scale else scale
                    scales[b, first + j, c] = scale
                    scaled = (block.float() / np.float32(scale or 1)).clamp(-most, most)
                    numbers[b][where] = scaled.to(dtype).double()
            start = end
    return (numbers, scales) if x.dim() == 3 else (numbers[0], scales[0])


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(21)

    def r(*shape):
        return torch.randn(*shape, generator=generator) * torch.exp2(torch.randint(-9, 9, (shape[-1],)).float())

    x = r(200, 6).half()
    x[130:150, 2] = 0
    ends = torch.tensor([40, 40, 104, 168, 200], dtype=torch.int32)
    mx_name, block = "npu_grouped_dynamic_mx_quant", "npu_grouped_dynamic_block_quant"
    wide = r(2, 300, 150).bfloat16()
    return [
        Call(mx_name, (x, ends), {}, grouped_mx),
        Call(mx_name, (x.bfloat16(), ends), {"dst_type": 24}, grouped_mx),
        Call(mx_name, (x, ends), {"dst_type": 296, "round_mode": "floor"}, grouped_mx),
        Call(mx_name, (x, ends), {"dst_type": 24, "scale_alg": 1}, grouped_mx),
        Call(block, (wide[0, :20], torch.tensor([7, 20], dtype=torch.int32)), {}, grouped_blocks),
        Call(
            block,
            (wide, torch.tensor([130, 300], dtype=torch.int32)),
            {"row_block_size": 128, "col_block_size": 64, "dst_type": 292, "min_scale": 20.0},
            grouped_blocks,
        ),
    ]


class TestGroupedNumbers(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("grouped_numbers", calls())

    def test_page(self):
        """The example of the page."""
        x = torch.tensor([[0.0], [8], [64], [512]] * 2).bfloat16().npu()
        groups = torch.tensor([4, 8], dtype=torch.int32).npu()
        numbers, scales = torch.npu_grouped_dynamic_mx_quant(x, groups, dst_type=torch.float8_e4m3fn)
        self.assertEqual(numbers.float().cpu().flatten(), torch.tensor([0.0, 4, 32, 256] * 2))
        self.assertEqual(scales.cpu(), torch.tensor([[[128, 0]]] * 2, dtype=torch.uint8))

    def test_refusals(self):
        x, ends = torch.randn(64, 4).half().npu(), torch.tensor([64], dtype=torch.int32).npu()
        one, other = torch.npu_grouped_dynamic_mx_quant, torch.npu_grouped_dynamic_block_quant
        for error, message, call in (
            (NotImplementedError, "scale_alg must be one of", lambda: one(x, ends, scale_alg=2)),
            (NotImplementedError, "blocksize must be", lambda: one(x, ends, blocksize=64)),
            (RuntimeError, "x must be of two dimensions", lambda: one(x[None], ends)),
            (RuntimeError, "row_block_size must be", lambda: other(x, ends, row_block_size=2)),
            (NotImplementedError, "dst_type must be one of", lambda: other(x, ends, dst_type=290)),
            (NotImplementedError, "group_list_type", lambda: other(x, ends, group_list_type=1)),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
