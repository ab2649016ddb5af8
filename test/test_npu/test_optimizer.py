"""Optimizers, lists of tensors and gradient clipping on npu against the same on the CPU."""

# ruff: noqa: B023 - functions made in a loop are called in the same round

import copy
import unittest

import nn_checks
from nn_checks import randn, relative_error

import torch

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2),
    "nesterov": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "dampening": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.1, maximize=True),
    "loop": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, weight_decay=1e-2),
    "amsgrad": lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2),
    "fused_sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, nesterov=True, fused=True),
    "fused_plain": lambda p: torch.optim.SGD(p, 0.1, fused=True),
    "fused_adam": lambda p: torch.optim.Adam(p, 1e-2, weight_decay=1e-2, amsgrad=True, fused=True),
    "fused_adamw": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-2, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "radam": lambda p: torch.optim.RAdam(p, 1e-2),
    "nadam": lambda p: torch.optim.NAdam(p, 1e-2),
}


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(96, 32, 3, padding=1),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 5),
    )


class TestOptimizers(unittest.TestCase):
    def test_three_steps(self):
        start = model()
        for name, make in OPTIMIZERS.items():
            with self.subTest(name):
                cpu, npu = copy.deepcopy(start), copy.deepcopy(start).npu()
                steps = [make(cpu.parameters()), make(npu.parameters())]
                for step in range(3):
                    for net, optimizer in zip((cpu, npu), steps, strict=True):
                        optimizer.zero_grad()
                        # The same gradients on both sides: this test is about the update.
                        for i, p in enumerate(net.parameters()):
                            p.grad = randn(*p.shape, grad=False, seed=100 * step + i).to(p.device)
                        optimizer.step()
                for (key, want), got in zip(cpu.state_dict().items(), npu.state_dict().values(), strict=True):
                    if want.is_floating_point():
                        self.assertLess(relative_error(got, want), 1e-5, key)

    def test_foreach_in_one_pass(self):
        """A default step is one operator of the device; what it does not apply to takes upstream's list operators."""
        for make in (
            lambda p: torch.optim.Adam(p, amsgrad=True),
            lambda p: torch.optim.AdamW(p, maximize=True),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
        ):
            for dtype, most in ((torch.float32, 1), (torch.float64, 1), (torch.bfloat16, None)):
                params = [torch.nn.Parameter(torch.ones(n, 3, dtype=dtype).npu()) for n in range(1, 9)]
                optimizer = make(params)
                for step in range(3):
                    for p in params:
                        p.grad = torch.full_like(p, 0.5 + step)
                    torch.npu.synchronize()
                    before = torch._C._npu_simulatorCounters(0)["ops_launched"]
                    optimizer.step()
                    torch.npu.synchronize()
                    launches = torch._C._npu_simulatorCounters(0)["ops_launched"] - before
                with self.subTest(type(optimizer).__name__, dtype=dtype):
                    self.assertEqual(launches == 1, most == 1)

    def test_channels_last_parameters(self):
        """They are updated in the order of their memory, and lists of them by one operator as all others."""
        last = torch.channels_last
        start = torch.nn.ParameterList(
            randn(8, 3, 3, 3, seed=i).detach().contiguous(memory_format=last) for i in range(3)
        )
        for name, make in OPTIMIZERS.items():
            with self.subTest(name):
                cpu, npu = copy.deepcopy(start), copy.deepcopy(start).npu()
                launched = []
                for net in (cpu, npu):
                    optimizer = make(net.parameters())
                    for step in range(2):
                        for i, p in enumerate(net.parameters()):
                            gradient = randn(*p.shape, grad=False, seed=100 * step + i).to(p.device)
                            p.grad = gradient.contiguous(memory_format=last)
                        torch.npu.synchronize()
                        before = torch._C._npu_simulatorCounters(0)
                        optimizer.step()
                        torch.npu.synchronize()
                        after = torch._C._npu_simulatorCounters(0)
                        if before is not None:
                            launched.append(after["ops_launched"] - before["ops_launched"])
                for want, got in zip(cpu.parameters(), npu.parameters(), strict=True):
                    self.assertEqual(got.stride(), want.stride())
                    self.assertLess(relative_error(got, want), 1e-5)
                if name == "momentum" and launched:
                    self.assertLess(launched[-1], 3 * len(start))  # three operators, not three for each

    def test_fused_in_half_precision(self):
        """Against the loop in the same dtype on npu: the CPU's own fused SGD leaves half-precision parameters alone.

        With an epsilon that float16 holds: the default one vanishes there, and the loop divides by zero."""
        makers = {
            "sgd": lambda p, **kw: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, nesterov=True, **kw),
            "plain": lambda p, **kw: torch.optim.SGD(p, 0.1, **kw),
            "adam": lambda p, **kw: torch.optim.Adam(p, 1e-2, eps=1e-3, weight_decay=1e-2, amsgrad=True, **kw),
            "adamw": lambda p, **kw: torch.optim.AdamW(p, 1e-2, eps=1e-3, **kw),
        }
        for dtype in (torch.float16, torch.bfloat16):
            for name, make in makers.items():
                with self.subTest(name, dtype=dtype):
                    params = [torch.nn.Parameter(randn(100, seed=7, grad=False).to(dtype).npu()) for _ in range(2)]
                    steps = [make([params[0]], fused=True), make([params[1]], foreach=False)]
                    for step in range(3):
                        for p, optimizer in zip(params, steps, strict=True):
                            p.grad = randn(100, seed=step, grad=False).to(dtype).npu()
                            optimizer.step()
                    self.assertLess(relative_error(*params), 4 * torch.finfo(dtype).eps)
                    self.assertGreater(relative_error(params[0], randn(100, seed=7, grad=False)), 1e-3)

    def test_steps_counted_in_integers(self):
        """As DeepSpeed counts them; the CPU's kernel takes any dtype."""
        for name in ("_fused_adam_", "_fused_adamw_"):
            found = []
            for device, dtype in (("cpu", torch.float32), ("npu", torch.int64), ("npu", torch.int32)):
                torch.manual_seed(0)
                lists = [[torch.rand(5).to(device)] for _ in range(4)]
                step = torch.tensor(3, dtype=dtype, device=device)
                options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8}
                getattr(torch, name)(*lists, [], [step], amsgrad=False, maximize=False, **options)
                found.append([each.cpu() for (each,) in lists])
                self.assertEqual(step.item(), 3)
            for other in found[1:]:
                for a, b in zip(other, found[0], strict=True):
                    torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)

    def test_training_lowers_the_loss(self):
        net, x = model().npu(), randn(16, 96, 8, 8, grad=False).npu()
        target = (torch.arange(16) % 5).npu()
        optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
        losses = []
        for _ in range(15):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 2)


class TestLists(unittest.TestCase):
    def lists(self, seed, positive=False):
        shapes = ((3, 4), (7,), (2, 40, 5, 5))
        values = [randn(*s, grad=False, seed=seed + i) for i, s in enumerate(shapes)]
        return [v.abs() + 0.5 for v in values] if positive else values

    def both(self, fn, *args):
        to_npu = [[t.npu() for t in a] if isinstance(a, list) and isinstance(a[0], torch.Tensor) else a for a in args]
        copies = [[t.clone() for t in a] if isinstance(a, list) and isinstance(a[0], torch.Tensor) else a for a in args]
        want, got = fn(*copies), fn(*to_npu)
        want, got = (copies[0], to_npu[0]) if want is None else (want, got)
        for w, g in zip(want, got, strict=True):
            self.assertEqual(g.device.type, "npu")
            self.assertLess(relative_error(g, w), 1e-6, fn)

    def test_against_the_cpu(self):
        a, b, c = self.lists(1), self.lists(4), self.lists(7, positive=True)
        for name in ("add", "sub"):
            self.both(lambda x, y: getattr(torch, f"_foreach_{name}")(x, y, alpha=0.3), a, b)
            self.both(lambda x, y: getattr(torch, f"_foreach_{name}_")(x, y, alpha=0.3), a, b)
        for name in ("mul", "div", "maximum", "minimum"):
            self.both(getattr(torch, f"_foreach_{name}"), a, c)
            self.both(getattr(torch, f"_foreach_{name}_"), a, c)
        for name in ("add", "mul", "div"):
            self.both(getattr(torch, f"_foreach_{name}"), a, 0.7)
            self.both(getattr(torch, f"_foreach_{name}_"), a, 0.7)
            self.both(getattr(torch, f"_foreach_{name}"), a, [0.7, -2.0, 3])
            self.both(getattr(torch, f"_foreach_{name}_"), a, [0.7, -2.0, 3])
        for name in ("sqrt", "neg", "reciprocal"):
            self.both(getattr(torch, f"_foreach_{name}"), c)
            self.both(getattr(torch, f"_foreach_{name}_"), c)
        for name in ("addcmul", "addcdiv"):
            self.both(lambda x, y, z: getattr(torch, f"_foreach_{name}")(x, y, z, 0.3), a, b, c)
            self.both(lambda x, y, z: getattr(torch, f"_foreach_{name}_")(x, y, z, 0.3), a, b, c)
            self.both(lambda x, y, z: getattr(torch, f"_foreach_{name}_")(x, y, z, [0.3, 1, 2]), a, b, c)
        self.both(lambda x, y: torch._foreach_lerp(x, y, 0.3), a, b)
        self.both(lambda x, y: torch._foreach_lerp_(x, y, 0.3), a, b)
        self.both(torch._foreach_zero_, a)
        self.both(torch._foreach_copy_, a, b)
        for order in (1, 2, float("inf")):
            self.both(lambda x: torch._foreach_norm(x, order), a)

    def test_mixed_lists_take_the_loop(self):
        a = [torch.ones(3, device="npu"), torch.ones(4, device="npu", dtype=torch.int64)]
        got = torch._foreach_add(a, 1)
        self.assertEqual([g.dtype for g in got], [torch.float32, torch.int64])
        self.assertEqual([g.tolist() for g in got], [[2.0] * 3, [2] * 4])

    def test_clipping(self):
        for kind in ("norm", "value"):
            cpu, npu = model(), model().npu()
            for net in (cpu, npu):
                for i, p in enumerate(net.parameters()):
                    p.grad = randn(*p.shape, grad=False, seed=i).to(p.device)
                if kind == "norm":
                    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                else:
                    torch.nn.utils.clip_grad_value_(net.parameters(), 0.5)
            for want, got in zip(cpu.parameters(), npu.parameters(), strict=True):
                self.assertLess(relative_error(got.grad, want.grad), 1e-6)


class TestEmbedding(unittest.TestCase):
    def test_gradient(self):
        index = torch.tensor([[1, 2, 2], [0, 5, 1]])
        for options in ({}, {"padding_idx": 2}, {"scale_grad_by_freq": True}):
            for dtype in (torch.int64, torch.int32):
                with self.subTest(dtype=dtype, **options):
                    nn_checks.check(
                        self,
                        lambda w, i: torch.nn.functional.embedding(i, w, **options),
                        [randn(6, 4), index.to(dtype)],
                    )


if __name__ == "__main__":
    unittest.main()
