"""npu operators for optimizers and quantisation against formulas written here."""

import numpy as np
from common_utils import TestCase, run_in_process, run_tests

import torch


class TestAdam(TestCase):
    def setUp(self):
        g = torch.Generator().manual_seed(0)
        self.var, self.m, self.grad = (torch.randn(50, generator=g) for _ in range(3))
        self.v = torch.rand(50, generator=g)

    def state(self):
        return tuple(t.clone().npu() for t in (self.var, self.m, self.v))

    def test_apply_adam(self):
        numbers = (0.9**3, 0.99**3, 0.1, 0.9, 0.99, 1e-4)
        for nesterov in (False, True):
            m = 0.9 * self.m + 0.1 * self.grad
            v = 0.99 * self.v + 0.01 * self.grad**2
            rate = 0.1 * (1 - 0.99**3) ** 0.5 / (1 - 0.9**3)
            step = 0.9 * m + 0.1 * self.grad if nesterov else m
            expected = (self.var - rate * step / (v.sqrt() + 1e-4), m, v)
            out = self.state()
            result = torch.npu_apply_adam(*numbers, self.grad.npu(), False, nesterov, out=out)
            self.assertEqual(result[0].data_ptr(), out[0].data_ptr())
            self.assertEqual(out, expected, prec=1e-5)
            old = self.state()
            torch.npu_apply_adam(*old, *numbers, self.grad.npu(), None, nesterov)
            self.assertEqual(old, expected, prec=1e-5)
        strided = torch.zeros(50, 2).npu()[:, 0].copy_(self.var)
        _, m, v = self.state()
        torch.npu_apply_adam(*numbers, self.grad.npu(), False, False, out=(strided, m, v))
        plain = self.state()
        torch.npu_apply_adam(*numbers, self.grad.npu(), False, False, out=plain)
        self.assertEqual(strided, plain[0], prec=1e-6)
        with self.assertRaisesRegex(NotImplementedError, "out="):
            torch.npu_apply_adam(*numbers, self.grad.npu(), False, False)
        with self.assertRaisesRegex(RuntimeError, "one shape"):
            torch.npu_apply_adam(*numbers, self.grad[:3].npu(), False, False, out=self.state())

    def test_bert_apply_adam(self):
        for most, norm, decay in ((-1.0, 0.0, 0.0), (1.0, 4.0, 0.01), (1.0, 0.5, 0.01)):
            grad = self.grad * (min(1.0, most / (norm + 1e-6)) if most > 0 else 1.0)
            m, v = 0.9 * self.m + 0.1 * grad, 0.99 * self.v + 0.01 * grad**2
            direction = m / (v.sqrt() + 1e-6)
            numbers = (0.1, 0.9, 0.99, 1e-6, self.grad.npu(), most, norm, decay)
            out = self.state()
            torch.npu_bert_apply_adam(*numbers, out=out)
            self.assertEqual(out, (self.var - 0.1 * (direction + decay * self.var), m, v), prec=1e-4)
            out = self.state()
            torch.npu_bert_apply_adam(*out, *numbers, step_size=0.3, adam_mode=1)
            moved = self.var - 0.3 * direction
            self.assertEqual(out, (moved - 0.1 * decay * moved, m, v), prec=1e-4)
        with self.assertRaisesRegex(RuntimeError, "step_size"):
            torch.npu_bert_apply_adam(*numbers, adam_mode=1, out=out)
        with self.assertRaisesRegex(NotImplementedError, "out="):
            torch.npu_bert_apply_adam(*numbers)


class TestIfmr(TestCase):
    def reference(self, data, with_offset, bins=128, percentile=0.999999):
        data = data.numpy().astype(np.float32)
        low, high = data.min(), data.max()
        counts = np.cumsum(np.histogram(data, bins)[0]) / np.float32(data.size)
        top = (counts < np.float32(percentile)).sum() / bins * (high - low) + low
        bottom = (counts < np.float32(1 - percentile)).sum() / bins * (high - low) + low
        if with_offset:
            top, bottom = max(top, 0), min(bottom, 0)
        else:
            top, bottom = max(abs(top), abs(bottom)), 0
        best = None
        for factor in np.arange(0.7, 1.3, 0.01):
            scale = (top * factor - bottom) / 255 if with_offset else top * factor / 127
            offset = -(np.round(bottom / scale) + 128) if with_offset else 0.0
            restored = (np.clip(np.round(data / scale) + offset, -128, 127) - offset) * scale
            loss = np.square(restored - data).sum()
            if best is None or loss < best[0]:
                best = (loss, scale, offset)
        return best

    def test_against_search(self):
        g = torch.Generator().manual_seed(1)
        for with_offset in (True, False):
            for shape in ((2, 2, 3, 4), (30, 20)):
                data = torch.rand(shape, generator=g) * 2 - 1
                hist = torch.histc(data, 128, data.min().item(), data.max().item())
                scale, offset = torch.npu_ifmr(
                    data.npu(), data.min().reshape(1).npu(), data.max().reshape(1).npu(), hist.cumsum(0).int().npu(),
                    0.999999, 0.999999, 0.7, 1.3, 0.01, with_offset,
                )  # fmt: skip
                loss, best_scale, best_offset = self.reference(data, with_offset)
                # Neighbouring tries may lose equally little in float32.
                restored = ((data / scale.cpu()).round() + offset.cpu()).clamp(-128, 127)
                mine = (((restored - offset.cpu()) * scale.cpu() - data) ** 2).sum().item()
                self.assertLessEqual(mine, loss * 1.01)
                self.assertLess(abs(scale.item() - best_scale) / best_scale, 0.05)
                self.assertLessEqual(abs(offset.item() - best_offset), 3)
        with self.assertRaisesRegex(RuntimeError, "nothing to search"):
            torch.npu_ifmr(data.npu(), *(torch.zeros(1).npu(),) * 2, hist.int().npu(), 0.9, 0.9, 1.3, 0.7, 0.01, True)


class TestHost(TestCase):
    def test_enque_tensor(self):
        script = """import torch
x = torch.tensor([1.5, 2.0]).npu()
torch.npu_enque_tensor([x, x * 2], "a {} b")
torch.npu_enque_tensor([x.sum()], "end {} of {}")
"""
        lines = run_in_process(script).stdout.replace(" ", "").split("\n")
        self.assertEqual(lines[0], "a1.5000")
        self.assertIn("4", lines)
        self.assertEqual(sum("Float" in line for line in lines), 3)
        self.assertTrue(lines[-2].endswith("of{}"), lines)

    def test_hcom_allreduce_without_a_group(self):
        x = torch.zeros(2).npu()
        with self.assertRaisesRegex(ValueError, "there is no group 'world'"):
            torch.ops.npu.npu_hcom_allreduce.out(x, "sum", "world", 0, 0, 1.0, 0.0, x, None)


if __name__ == "__main__":
    run_tests()
