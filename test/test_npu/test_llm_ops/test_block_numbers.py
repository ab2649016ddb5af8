"""Numbers with a scale for each block (torch/npu/operators/block_numbers.py) against their definitions."""

import numpy as np
from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch

FLOAT4 = torch.float4_e2m1fn_x2
EMAX = {torch.float8_e4m3fn: (8, 448.0), torch.float8_e5m2: (15, 57344.0), FLOAT4: (2, 6.0)}
FOURS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def nearest_fours(values, mode):
    """The code of the number of E2M1 for each value; of two equally near ones that with an even code for rint."""
    codes = []
    for value in values:
        size = min(abs(value), 6.0)
        below = max(i for i in range(8) if FOURS[i] <= size)
        above = below if FOURS[below] == size else below + 1
        if mode == "floor":
            code = above if np.signbit(value) else below
        else:
            low, high = size - FOURS[below], FOURS[above] - size
            tie = below if below % 2 == 0 and mode == "rint" else above
            code = below if low < high else above if high < low else tie
        codes.append(code + (8 if np.signbit(value) else 0))
    return codes


def mx(x, axis, dtype, mode="rint"):
    emax, most = EMAX[dtype]
    rows = x.movedim(axis, -1).reshape(-1, x.shape[axis]).numpy()
    numbers, scales = [], []
    for row in rows:
        out, powers = [], []
        for start in range(0, len(row), 32):
            block = row[start : start + 32]
            largest = np.abs(block).max()
            power = max(int(np.floor(np.log2(largest))) - emax, -127) if largest else -127
            powers.append(power + 127)
            out += list(np.clip(block / 2.0**power, -most, most))
        powers += [0] * (len(powers) % 2)
        numbers.append(out)
        scales.append(powers)
    shape = x.movedim(axis, -1).shape
    scaled = torch.tensor(np.array(numbers)).view(shape).movedim(-1, axis)
    if dtype is FLOAT4:
        flat = scaled.reshape(-1, scaled.shape[-1]).numpy()
        codes = torch.tensor([nearest_fours(row, mode) for row in flat])
        result = (codes[:, ::2] + 16 * codes[:, 1::2]).view(*scaled.shape[:-1], -1)
    else:
        result = scaled.float().to(dtype)
    pairs = torch.tensor(scales).view(*shape[:-1], -1, 2).movedim(-2, axis)
    return result, pairs


def dynamic_mx(x, *, axis=-1, round_mode="rint", dst_type=296, **_):
    dtype = dst_type if isinstance(dst_type, torch.dtype) else {296: FLOAT4, 291: torch.float8_e5m2}[dst_type]
    return mx(x, axis % x.dim(), dtype, round_mode)


def dual_axis(x, *, dst_type=296, **_):
    return *dynamic_mx(x, axis=-1, dst_type=dst_type), *dynamic_mx(x, axis=-2, dst_type=dst_type)


def dual_level(x, *, round_mode="rint"):
    rows = x.reshape(-1, x.shape[-1])
    scales, level = [], torch.empty_like(rows)
    for start in range(0, rows.shape[1], 512):
        block = rows[:, start : start + 512]
        scale = (block.abs().amax(1) / 6).float().double()
        level[:, start : start + 512] = (block.float() / scale[:, None].float()).half().double()
        scales.append(scale)
    numbers, powers = mx(level, 1, FLOAT4, round_mode)
    shape = x.shape[:-1]
    return numbers.view(*shape, -1), torch.stack(scales, 1).view(*shape, -1), powers.view(*shape, -1, 2)


def square(x, *, round_mode="rint", dst_type=296):
    """Blocks of 32 by 32: each row of a block is one of mx that has the block's largest number."""
    dtype = FLOAT4 if dst_type == 296 else torch.float8_e4m3fn
    emax, most = EMAX[dtype]
    batched = x if x.dim() == 3 else x[None]
    rows, columns = batched.shape[1:]
    scaled = torch.zeros_like(batched)
    down, across = -(-rows // 32), -(-columns // 32)
    powers = torch.zeros(len(batched), down, across)
    for b in range(len(batched)):
        for i in range(down):
            for j in range(across):
                where = (b, slice(32 * i, 32 * i + 32), slice(32 * j, 32 * j + 32))
                largest = float(batched[where].abs().max())
                power = max(int(np.floor(np.log2(largest))) - emax, -127) if largest else -127
                powers[b, i, j] = power + 127
                scaled[where] = (batched[where] / 2.0**power).clamp(-most, most)
    if dtype is FLOAT4:
        codes = torch.tensor([nearest_fours(row, round_mode) for row in scaled.reshape(-1, columns).numpy()])
        numbers = (codes[:, ::2] + 16 * codes[:, 1::2]).view(len(batched), rows, -1)
    else:
        numbers = scaled.float().to(dtype)
    by_row = torch.zeros(len(batched), rows, -(-across // 2), 2)
    by_column = torch.zeros(len(batched), -(-down // 2), columns, 2)
    for i in range(rows):
        by_row[:, i].view(len(batched), -1)[:, :across] = powers[:, i // 32]
    for j in range(columns):
        for i in range(down):
            by_column[:, i // 2, j, i % 2] = powers[:, i, j // 32]
    return tuple(t if x.dim() == 3 else t[0] for t in (numbers, by_row, by_column))


def block_quant(x, *, min_scale=0.0):
    numbers, scales = torch.empty_like(x), []
    for start in range(0, x.shape[-1], 128):
        block = x[..., start : start + 128]
        scale = torch.maximum(block.abs().amax(-1) / 127, torch.tensor(min_scale, dtype=x.dtype))
        numbers[..., start : start + 128] = (block / torch.where(scale == 0, 1, scale)[..., None]).round()
        scales.append(scale)
    return numbers, torch.stack(scales, -1)


def calls() -> list[Call]:
    generator = torch.Generator().manual_seed(10)

    def r(*shape):
        return torch.randn(*shape, generator=generator) * torch.exp2(torch.randint(-9, 9, (shape[-1],)).float())

    wide = r(3, 200).half()
    wide[1, 32:64] = 0
    return [
        Call("npu_dynamic_block_quant", (wide,), {}, block_quant),
        Call("npu_dynamic_block_quant", (r(2, 3, 128).bfloat16(),), {"min_scale": 0.5}, block_quant),
        Call("npu_dynamic_mx_quant", (wide,), {"dst_type": torch.float8_e4m3fn}, dynamic_mx),
        Call("npu_dynamic_mx_quant", (r(40, 6).bfloat16(),), {"dst_type": 291, "axis": 0}, dynamic_mx),
        Call("npu_dynamic_mx_quant", (wide,), {}, dynamic_mx),
        Call("npu_dynamic_mx_quant", (r(2, 70, 4).half(),), {"axis": 1, "round_mode": "floor"}, dynamic_mx),
        Call("npu_dynamic_mx_quant", (r(4, 64).half(),), {"round_mode": "round"}, dynamic_mx),
        Call("npu_dynamic_mx_quant_with_dual_axis", (r(40, 66).half(),), {"dst_type": 291}, dual_axis),
        Call("npu_dynamic_mx_quant_with_dual_axis", (r(40, 66).half(),), {}, dual_axis),
        Call("npu_dynamic_block_mx_quant", (r(40, 70).half(),), {}, square),
        Call("npu_dynamic_block_mx_quant", (r(2, 33, 64).bfloat16(),), {"dst_type": 24}, square),
        Call("npu_dynamic_dual_level_mx_quant", (r(2, 2, 600).half() / 64,), {}, dual_level),
        Call("npu_anti_mx_quant", (torch.ones(2, 64).to(torch.float8_e4m3fn), torch.zeros(2, 1, 2).byte()), {}),
    ]


class TestBlockNumbers(LlmOpsTestCase):
    def test_calls(self):
        self.check_calls("block_numbers", calls())

    def test_back(self):
        """What was made small comes back, but for what exceeds the largest number of a dtype."""
        x = torch.randn(40, 66).half().npu()
        for dtype, source, step in (
            (torch.float8_e4m3fn, 292, 1 / 8),
            (torch.float8_e5m2, 23, 1 / 8),
            (296, 296, 1 / 4),
        ):
            for axis in (0, 1):
                small, scale = torch.ops.npu.npu_dynamic_mx_quant(x, axis=axis, dst_type=dtype)
                back = torch.ops.npu.npu_anti_mx_quant(small, scale, axis=axis, src_type=source, dst_type=torch.float32)
                self.assertLessEqual(float((back - x).abs().max()), step * float(x.abs().max()))
        ones = torch.full((2, 64), 1.5).to(torch.float8_e5m2).npu()
        powers = torch.tensor([[[127, 130]], [[126, 127]]], dtype=torch.uint8).npu()
        back = torch.ops.npu.npu_anti_mx_quant(ones, powers, src_type=291)
        self.assertEqual(back.dtype, torch.bfloat16)
        self.assertEqual(back[:, ::32].float().cpu(), torch.tensor([[1.5, 12.0], [0.75, 1.5]]))

    def test_refusals(self):
        x = torch.randn(2, 64).half().npu()
        mx_op, block = torch.ops.npu.npu_dynamic_mx_quant, torch.ops.npu.npu_dynamic_block_quant
        for message, error, call in (
            ("scale_alg must be 0, not 1", NotImplementedError, lambda: mx_op(x, scale_alg=1)),
            ("dst_type must be one of", NotImplementedError, lambda: mx_op(x, dst_type=290)),
            ("block_size must be 32", NotImplementedError, lambda: mx_op(x, block_size=64)),
            ("round_mode must be one of", NotImplementedError, lambda: mx_op(x, dst_type=291, round_mode="floor")),
            ("input must be one of", RuntimeError, lambda: mx_op(x.float())),
            ("must be even", RuntimeError, lambda: mx_op(x[:, :63])),
            ("must be 1 and 128, not 2 and 128", NotImplementedError, lambda: block(x, row_block_size=2)),
            (
                "must be None",
                NotImplementedError,
                lambda: torch.ops.npu.npu_dynamic_dual_level_mx_quant(x, smooth_scale=x),
            ),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
