"""torchaudio's unmodified wheel: it imports, and its operators on cpu and npu give what plain loops give."""

import importlib.util
import math
import os
import subprocess
import sys
import unittest

from common_utils import TestCase, run_in_process, run_tests

import torch
from torch import _torchaudio_ops

FOUND = importlib.util.find_spec("torchaudio") is not None
DEVICES = ("cpu", "npu")


def add_logs(*values):
    top = max(values)
    return top if top == -math.inf else top + math.log(sum(math.exp(v - top) for v in values))


def transducer_loss(scores, labels, blank):
    """Of one sequence: scores[t][u][class] are logarithms; all paths are walked by a table."""
    times, states = len(scores), len(labels) + 1
    table = [[-math.inf] * states for _ in range(times)]
    for t in range(times):
        for u in range(states):
            ways = [0.0] if t == u == 0 else []
            if t:
                ways.append(table[t - 1][u] + scores[t - 1][u][blank])
            if u:
                ways.append(table[t][u - 1] + scores[t][u - 1][labels[u - 1]])
            table[t][u] = add_logs(*ways)
    return -(table[-1][-1] + scores[-1][-1][blank])


def best_paths(log_probs, labels, blank):
    """The score of the best path of CTC, by walking all of them."""
    times = len(log_probs)
    sequence = [blank, *(x for label in labels for x in (label, blank))]

    def walk(t, at):
        own = log_probs[t][sequence[at]]
        if t == times - 1:
            return own if at >= len(sequence) - 2 else -math.inf
        ways = [walk(t + 1, at)]
        if at + 1 < len(sequence):
            ways.append(walk(t + 1, at + 1))
        if at % 2 and at + 2 < len(sequence) and sequence[at] != sequence[at + 2]:
            ways.append(walk(t + 1, at + 2))
        return own + max(ways)

    return max(walk(0, at) for at in range(min(2, len(sequence))))


class TestOperators(TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Where the wheel is not installed: its Python code would ask so.
        for name in ("_torchaudio.so", "libtorchaudio.so"):
            assert _torchaudio_ops.provide(f"/somewhere/torchaudio/lib/{name}")

    def test_other_libraries_are_left_alone(self):
        for path in ("/a/torchaudio/lib/libother.so", "/a/torch/lib/_torchaudio.so", "/a/libtorchaudio.so"):
            self.assertFalse(_torchaudio_ops.provide(path))

    def test_filter(self):
        generator = torch.Generator().manual_seed(0)
        for samples, order in ((0, 3), (1, 3), (5, 1), (100, 2), (128, 3), (300, 9), (129, 200)):
            signal = torch.randn(2, 3, samples, generator=generator, dtype=torch.float64)
            taps = torch.randn(3, order, generator=generator, dtype=torch.float64) * 0.3
            taps[:, -1] = 1
            start = torch.zeros(2, 3, samples + order - 1, dtype=torch.float64)
            start[:, :, : order - 1] = torch.randn(2, 3, order - 1, generator=generator, dtype=torch.float64)
            expected = start.clone()
            for t in range(samples):
                before = expected[:, :, t : t + order - 1]
                expected[:, :, t + order - 1] = signal[:, :, t] - (before * taps[:, :-1]).sum(2)
            for device in DEVICES:
                for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
                    with self.subTest(device=device, dtype=dtype, samples=samples, order=order):
                        given = [t.clone().to(device, dtype) for t in (signal, taps, start)]
                        found = torch.ops.torchaudio._lfilter_core_loop(*given)
                        self.assertEqual(given[0].cpu(), signal.to(dtype))
                        self.assertEqual(found.cpu(), given[2].cpu())
                        scale = max(1.0, expected.abs().max().item())
                        self.assertEqual(found.cpu().double() / scale, expected / scale, atol=tolerance, rtol=0)

    def test_filter_refuses(self):
        call = torch.ops.torchaudio._lfilter_core_loop
        with self.assertRaisesRegex(RuntimeError, "do not fit"):
            call(torch.ones(2, 3, 8), torch.ones(3, 4), torch.zeros(2, 3, 8))
        with self.assertRaisesRegex(RuntimeError, "3 dimensions, got 2"):
            call(torch.ones(3, 8), torch.ones(3, 4), torch.zeros(3, 11))

    def test_overdrive(self):
        generator = torch.Generator().manual_seed(1)
        for samples in (0, 1, 300):
            waveform, temp = torch.randn(2, 2, samples, generator=generator).unbind(0)
            last_in, last_out = torch.randn(2, 2, generator=generator).unbind(0)
            before, state, expected = last_in.clone(), last_out.clone(), torch.zeros_like(waveform)
            for t in range(samples):
                state = temp[:, t] - before + 0.995 * state
                before = temp[:, t]
                expected[:, t] = waveform[:, t] * 0.5 + state * 0.75
            for device in DEVICES:
                with self.subTest(device=device, samples=samples):
                    given = [t.clone().to(device) for t in (waveform, temp, last_in, last_out)]
                    given.append(torch.zeros_like(given[0]))
                    found = torch.ops.torchaudio._overdrive_core_loop(*given)
                    self.assertEqual([t.data_ptr() for t in found], [t.data_ptr() for t in given[2:]])
                    for result, wanted in zip(given[2:], (before, state, expected), strict=True):
                        self.assertEqual(result.cpu(), wanted, atol=1e-4, rtol=1e-4)

    def transducer(self, device, fused, clamp=-1.0, blank=0, dtype=torch.float32):
        generator = torch.Generator().manual_seed(2)
        logits = torch.randn(3, 5, 4, 6, generator=generator).to(dtype)
        if not fused:
            logits = logits.log_softmax(3)
        targets = torch.randint(1, 6, (3, 3), generator=generator)
        if blank == 5:
            targets = targets - 1
        targets[2, 1:] = -1  # what is behind a target's end is never looked at
        times, labels = torch.tensor([5, 3, 4]), torch.tensor([3, 2, 1])
        targets[1, 2] = 77
        lengths = [t.int().to(device) for t in (targets, times, labels)]
        found = torch.ops.torchaudio.rnnt_loss_forward(logits.to(device), *lengths, blank, clamp, fused)
        return logits, targets, times, labels, found

    def test_transducer_loss(self):
        for device in DEVICES:
            for fused in (True, False):
                for blank in (0, 5):
                    logits, targets, times, labels, (costs, _) = self.transducer(device, fused, blank=blank)
                    scores = logits.double().log_softmax(3) if fused else logits.double()
                    for n in range(3):
                        with self.subTest(device=device, fused=fused, blank=blank, sequence=n):
                            own = scores[n, : times[n], : labels[n] + 1].tolist()
                            expected = transducer_loss(own, targets[n, : labels[n]].tolist(), blank)
                            self.assertAlmostEqual(costs[n].item(), expected, places=4)

    def test_transducer_gradients_are_those_of_differences(self):
        for fused in (True, False):
            logits, targets, times, labels, (_, gradient) = self.transducer("cpu", fused)

            def loss(changed, n, *, fused=fused, targets=targets, times=times, labels=labels):
                scores = changed.log_softmax(3) if fused else changed
                own = scores[n, : times[n], : labels[n] + 1].tolist()
                return transducer_loss(own, targets[n, : labels[n]].tolist(), 0)

            picked = torch.randint(logits.numel(), (40,), generator=torch.Generator().manual_seed(3)).tolist()
            for at in picked:
                sides = []
                for step in (1e-5, -1e-5):
                    changed = logits.double().flatten()
                    changed[at] += step
                    sides.append(loss(changed.view_as(logits), at // logits[0].numel()))
                with self.subTest(fused=fused, at=at):
                    self.assertAlmostEqual(gradient.flatten()[at].item(), (sides[0] - sides[1]) / 2e-5, places=3)

    def test_transducer_on_npu_is_that_of_the_cpu(self):
        for fused in (True, False):
            for clamp in (-1.0, 0.01):
                for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 1e-3)):
                    with self.subTest(fused=fused, clamp=clamp, dtype=dtype):
                        ours, host = (self.transducer(d, fused, clamp, dtype=dtype)[-1] for d in ("npu", "cpu"))
                        for a, b in zip(ours, host, strict=True):
                            self.assertEqual(a.cpu(), b, atol=tolerance, rtol=tolerance)
                            self.assertEqual(a.dtype, dtype)
                        if clamp > 0:
                            self.assertLessEqual(host[1].abs().max().item(), 0.0101)

    def test_transducer_refuses(self):
        good = [torch.zeros(1, 4, 3, 5), torch.ones(1, 2).int(), torch.tensor([4]).int(), torch.tensor([2]).int()]
        call = torch.ops.torchaudio.rnnt_loss_forward
        call(*good, 0, -1.0, True)
        for at, wrong, text in (
            (0, good[0][0], "4 dimensions, got 3"),
            (0, good[0].double(), "float32 or float16"),
            (1, good[1].long(), "targets should be int32"),
            (2, torch.tensor([3]).int(), "longest of logit_lengths is 3"),
            (3, torch.tensor([1]).int(), "longest target has 1"),
            (3, torch.tensor([2, 2]).int(), "of 1 sequences, got 2"),
        ):
            with self.subTest(text), self.assertRaisesRegex(RuntimeError, text):
                call(*(wrong if n == at else each for n, each in enumerate(good)), 0, -1.0, True)
        with self.assertRaisesRegex(RuntimeError, "blank should be one of 5"):
            call(*good, 5, -1.0, True)

    def test_alignment(self):
        generator = torch.Generator().manual_seed(4)
        for times, labels in ((4, [1, 2]), (7, [1, 1, 3]), (6, [2, 3, 2]), (3, [1]), (4, [3, 3]), (3, [1, 1]), (2, [])):
            for blank in (0, 4):
                log_probs = torch.randn(1, times, 5, generator=generator).log_softmax(2)
                expected = best_paths(log_probs[0].tolist(), labels, blank)
                for device in DEVICES:
                    for dtype in (torch.int32, torch.int64):
                        with self.subTest(device=device, times=times, labels=labels, blank=blank, dtype=dtype):
                            lengths = torch.tensor([times]), torch.tensor([len(labels)])
                            given = [log_probs, torch.tensor([labels], dtype=dtype), *lengths]
                            path, scores = torch.ops.torchaudio.forced_align(*(t.to(device) for t in given), blank)
                            self.assertEqual((path.dtype, path.device.type), (dtype, device))
                            self.assertEqual(scores.cpu(), log_probs)
                            path = path[0].tolist()
                            found = sum(log_probs[0, t, c].item() for t, c in enumerate(path))
                            self.assertAlmostEqual(found, expected, places=4)
                            kept = [c for t, c in enumerate(path) if t == 0 or c != path[t - 1]]
                            self.assertEqual([c for c in kept if c != blank], labels)

    def test_alignment_refuses(self):
        call = torch.ops.torchaudio.forced_align
        for log_probs, labels, text in (
            (torch.zeros(1, 2, 5), [[1, 1]], "2 labels with 1 repeats want more than 2 steps"),
            (torch.zeros(2, 3, 5), [[1], [1]], "only one sequence"),
            (torch.zeros(3, 5), [[1]], "3 dimensions"),
        ):
            lengths = torch.tensor([log_probs.shape[1]]), torch.tensor([len(labels[0])])
            with self.subTest(text), self.assertRaisesRegex(RuntimeError, text):
                call(log_probs, torch.tensor(labels), *lengths, 0)
        with self.assertRaisesRegex(RuntimeError, r"input_lengths should be \[3\]"):
            call(torch.zeros(1, 3, 5), torch.tensor([[1]]), torch.tensor([2]), torch.tensor([1]), 0)


@unittest.skipUnless(FOUND, "torchaudio is not installed: pip install --no-deps -r requirements-nodeps.txt")
class TestWheel(TestCase):
    def test_import_is_silent_and_operators_come_with_it(self):
        code = """
import torch
assert not hasattr(torch.ops.torchaudio, "forced_align")
import torchaudio
from torchaudio._extension import _IS_ALIGN_AVAILABLE, _IS_TORCHAUDIO_EXT_AVAILABLE
assert _IS_TORCHAUDIO_EXT_AVAILABLE and _IS_ALIGN_AVAILABLE and torch.ops._torchaudio.cuda_version() is None
"""
        environment = {**os.environ, "PYTHONWARNINGS": "error"}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_filters_and_losses_train(self):
        done = run_in_process(
            """
import torch, torchaudio
from torchaudio import functional as F
torch.manual_seed(0)
wave = torch.randn(2, 4000) * 0.1
taps = torch.tensor([[1.0, -0.5, 0.2]]).repeat(2, 1)
found = []
for device in ("cpu", "npu"):
    a = taps.clone().to(device).requires_grad_()
    x = wave.clone().to(device).requires_grad_()
    y = F.lfilter(x, a, torch.tensor([[0.3, 0.1, 0.2]]).repeat(2, 1).to(device))
    y.pow(2).sum().backward()
    logits = torch.randn(2, 6, 4, 5, generator=torch.Generator().manual_seed(1)).to(device).requires_grad_()
    ids = torch.tensor([[1, 2, 3], [3, 1, 1]], dtype=torch.int32, device=device)
    counts = [torch.tensor(n, dtype=torch.int32, device=device) for n in ([6, 5], [3, 3])]
    loss = F.rnnt_loss(logits, ids, *counts)
    loss.backward()
    spans = F.forced_align(logits[:1, :, 0].detach().log_softmax(2), ids[:1, :2])
    found.append([t.detach().cpu() for t in (y, a.grad, x.grad, loss, logits.grad, *spans)])
for a, b in zip(*found):
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
"""
        )
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])


if __name__ == "__main__":
    run_tests()
