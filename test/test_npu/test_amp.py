"""Mixed precision: autocast regions, custom autograd functions in them, the gradient scaler."""

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import warnings

import op_checks
import torch.utils._pytree as pytree
from common_utils import TestCase, run_tests
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db

import torch


class TestAutocast(TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.a = torch.randn(4, 4, device="npu")

    def test_ops_run_in_their_dtype(self):
        for make, low in (
            (lambda: torch.autocast("npu", dtype=torch.float16), torch.float16),
            (lambda: torch.autocast("npu", dtype=torch.bfloat16), torch.bfloat16),
            (lambda: torch.npu.amp.autocast(), torch.float16),
            (lambda: torch.npu.amp.autocast(dtype=torch.bfloat16), torch.bfloat16),
        ):
            with make():
                product = self.a @ self.a
                self.assertEqual(product.dtype, low)
                self.assertEqual(torch.nn.functional.linear(self.a, self.a).dtype, low)
                self.assertEqual(torch.nn.functional.softmax(product, -1).dtype, torch.float32)
                self.assertEqual(torch.nn.functional.mse_loss(product, product).dtype, torch.float32)
                self.assertEqual((product + self.a).dtype, torch.float32)
                self.assertEqual(torch.cat([product, self.a]).dtype, torch.float32)
            self.assertEqual((self.a @ self.a).dtype, torch.float32)

    def test_state_queries(self):
        self.assertTrue(torch.amp.is_autocast_available("npu"))
        self.assertFalse(torch.is_autocast_enabled("npu"))
        with torch.autocast("npu", dtype=torch.bfloat16):
            self.assertTrue(torch.is_autocast_enabled("npu"))
            self.assertFalse(torch.is_autocast_enabled("cpu"))
            self.assertEqual(torch.get_autocast_dtype("npu"), torch.bfloat16)
            with torch.autocast("npu", enabled=False):
                self.assertFalse(torch.is_autocast_enabled("npu"))
                self.assertEqual((self.a @ self.a).dtype, torch.float32)
            with torch.autocast("npu", dtype=torch.float16):
                self.assertEqual((self.a @ self.a).dtype, torch.float16)
            self.assertEqual((self.a @ self.a).dtype, torch.bfloat16)
            seen = []
            thread = threading.Thread(target=lambda: seen.append(torch.is_autocast_enabled("npu")))
            thread.start()
            thread.join()
            self.assertEqual(seen, [False])
        self.assertFalse(torch.is_autocast_enabled("npu"))

    def test_cpu_tensors_are_untouched(self):
        with torch.autocast("npu"):
            self.assertEqual((torch.ones(2, 2) @ torch.ones(2, 2)).dtype, torch.float32)

    def test_unsafe_and_unsupported(self):
        with torch.autocast("npu"), self.assertRaisesRegex(RuntimeError, "unsafe to autocast"):
            torch.nn.functional.binary_cross_entropy(self.a.sigmoid(), self.a.sigmoid())
        with self.assertWarns(UserWarning), torch.autocast("npu", dtype=torch.float64):
            self.assertEqual((self.a @ self.a).dtype, torch.float32)

    def test_training_agrees_with_float32(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).npu()
        expected = model(self.a)
        with torch.autocast("npu", dtype=torch.bfloat16):
            output = model(self.a)
        self.assertEqual(output.dtype, torch.bfloat16)
        output.float().sum().backward()
        self.assertEqual(model[0].weight.grad.dtype, torch.float32)
        self.assertEqual(output.float(), expected, prec=3e-2)

    def test_decorator(self):
        @torch.npu.amp.autocast()
        def product(x):
            return x @ x

        self.assertEqual(product(self.a).dtype, torch.float16)


class TestCustomFunction(TestCase):
    def test_casts_inputs_and_keeps_the_state_for_backward(self):
        for fwd, bwd in (
            (
                lambda **kw: torch.amp.custom_fwd(device_type="npu", **kw),
                lambda f: torch.amp.custom_bwd(f, device_type="npu"),
            ),
            (lambda **kw: torch.npu.amp.custom_fwd(**kw), torch.npu.amp.custom_bwd),
        ):
            for cast in (torch.float32, None):
                seen = {}

                class Function(torch.autograd.Function):
                    @staticmethod
                    @fwd(cast_inputs=cast)
                    def forward(ctx, x, seen=seen):
                        seen["forward"] = (x.dtype, torch.is_autocast_enabled("npu"))
                        return x * 2

                    @staticmethod
                    @bwd
                    def backward(ctx, grad, seen=seen):
                        seen["backward"] = torch.is_autocast_enabled("npu")
                        return grad * 2

                x = torch.ones(2, device="npu", dtype=torch.float16, requires_grad=True)
                with torch.autocast("npu"):
                    y = Function.apply(x)
                y.sum().backward()
                inside = cast is None
                self.assertEqual(seen["forward"], (torch.float16 if inside else torch.float32, inside))
                self.assertEqual(seen["backward"], inside)
                self.assertEqual(x.grad.cpu(), torch.full((2,), 2.0, dtype=torch.float16))


class TestGradScaler(TestCase):
    def test_steps_and_skips(self):
        for make in (lambda: torch.amp.GradScaler("npu", init_scale=8.0), lambda: torch.npu.amp.GradScaler(8.0)):
            weight = torch.nn.Parameter(torch.ones(2, device="npu"))
            optimizer = torch.optim.SGD([weight], lr=1.0)
            scaler = make()
            self.assertTrue(scaler.is_enabled())
            scaler.scale((weight * 0.5).sum()).backward()
            self.assertEqual(weight.grad.cpu(), torch.full((2,), 4.0))
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(weight.cpu(), torch.full((2,), 0.5))
            self.assertEqual(scaler.get_scale(), 8.0)
            optimizer.zero_grad()
            scaler.scale((weight * float("inf")).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(weight.cpu(), torch.full((2,), 0.5))
            self.assertEqual(scaler.get_scale(), 4.0)

    def test_training_runs_on_the_npu_alone(self):
        code = """
            import torch

            def train(device, **options):
                torch.manual_seed(0)
                net = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.Flatten(), torch.nn.Linear(48, 2))
                net = net.to(device)
                optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, **options)
                scaler = torch.amp.GradScaler(device, init_scale=64.0, growth_interval=2)
                x, losses, scales = torch.randn(8, 2, 6, 6).to(device), [], []
                for step in range(6):
                    optimizer.zero_grad()
                    loss = net(x).square().mean()
                    before = [p.detach().cpu().clone() for p in net.parameters()]
                    scaler.scale(loss * (float("inf") if step == 3 else 1.0)).backward()
                    scaler.unscale_(optimizer)
                    if step != 3:
                        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                    scaler.step(optimizer)
                    scaler.update()
                    moved = any(not torch.equal(a, b.detach().cpu()) for a, b in zip(before, net.parameters()))
                    assert moved == (step != 3), step
                    losses.append(loss.item())
                    scales.append(scaler.get_scale())
                return losses, scales

            for options in ({}, {"foreach": True}, {"foreach": False}, {"fused": True}):
                losses, scales = train("npu", **options)
                assert scales == [64.0, 128.0, 128.0, 64.0, 64.0, 128.0], scales
                torch.testing.assert_close(losses, train("cpu")[0], rtol=1e-4, atol=1e-6)
            assert not torch.npu.fallback_stats(), torch.npu.fallback_stats()
        """
        environment = dict(os.environ, NPU_FALLBACK="0")
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=environment, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_unscale(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            for bad in (None, float("inf"), float("-inf"), float("nan")):
                grads = [torch.randn(3, 4, device="npu").to(dtype), torch.randn(2, 3, 4, 5, device="npu").to(dtype)]
                grads.append(torch.randn(4, 3, device="npu").to(dtype).t())
                grads.append(torch.randn(2, 3, 4, 5, device="npu").to(dtype, memory_format=torch.channels_last))
                grads.append(torch.empty(0, device="npu", dtype=dtype))
                if bad is not None:
                    grads[2][1, 2] = bad
                expected = [g.cpu() * 0.25 for g in grads]
                for shape in ((), (1,)):
                    values = [g.clone() for g in grads]
                    found = torch.zeros(shape, device="npu")
                    inverse = torch.full(shape, 0.25, device="npu")
                    torch._amp_foreach_non_finite_check_and_unscale_(values, found, inverse)
                    self.assertEqual(found.item(), 0.0 if bad is None else 1.0)
                    self.assertEqual(found.shape, torch.Size(shape))
                    for value, want in zip(values, expected, strict=True):
                        self.assertEqual(value.cpu(), want)
        # A flag that is up already stays up, and a list may hold several dtypes.
        found = torch.ones(1, device="npu")
        mixed = [torch.ones(2, device="npu"), torch.ones(2, device="npu", dtype=torch.float16)]
        torch._amp_foreach_non_finite_check_and_unscale_(mixed, found, torch.full((1,), 2.0, device="npu"))
        self.assertEqual(found.item(), 1.0)
        self.assertEqual([m.tolist() for m in mixed], [[2.0, 2.0], [2.0, 2.0]])
        with self.assertRaisesRegex(RuntimeError, "inv_scale must be a 1-element tensor"):
            torch._amp_foreach_non_finite_check_and_unscale_(mixed, found, torch.ones(2, device="npu"))

    def test_update_scale(self):
        # scale, steps so far, overflow, growth factor: steps to grow are 3.
        for scale, steps, overflow, factor in (
            (8.0, 0, 0.0, 2.0),
            (8.0, 2, 0.0, 2.0),
            (8.0, 2, 1.0, 2.0),
            (7.3, 2, 0.0, 1.1),
            (3e38, 2, 0.0, 2.0),
            (8.0, 5, 0.0, 2.0),
        ):
            results = []
            for device in ("cpu", "npu"):
                current = torch.full((), scale, device=device)
                tracker = torch.full((), steps, dtype=torch.int32, device=device)
                found = torch.full((1,), overflow, device=device)
                same = torch._amp_update_scale_(current, tracker, found, factor, 0.3, 3)
                self.assertIs(same, current)
                results.append((current.item(), tracker.item()))
            self.assertEqual(results[0], results[1], f"{scale} {steps} {overflow} {factor}")

    def test_state_dict(self):
        scaler = torch.npu.amp.GradScaler(init_scale=32.0)
        other = torch.npu.amp.GradScaler()
        other.load_state_dict(scaler.state_dict())
        self.assertEqual(other.get_scale(), 32.0)


class TestAutocastLists(TestCase):
    # CUDA's fake tensors do not see what happens inside these, and as_strided's sample has memory of its own.
    UNLIKE_FAKE = {"pinverse", "linalg.pinv", "linalg.pinv.hermitian", "svd_lowrank", "pca_lowrank"}
    NO_SAMPLE = {"as_strided.partial_views"}

    def test_same_registrations(self):
        cuda, npu = (
            {name for name in torch._C._dispatch_get_registrations_for_dispatch_key(key) if "cudnn" not in name}
            for key in ("AutocastCUDA", "AutocastPrivateUse1")
        )
        self.assertEqual(cuda - npu, set())

    def test_what_cuda_casts_npu_casts(self):
        """The results' dtypes of every operator of op_db, against those of fake CUDA tensors under CUDA's autocast."""
        different = {}
        self.enterContext(op_checks.quiet())
        for op in op_db:
            if torch.float32 not in op.dtypes or op.full_name in self.UNLIKE_FAKE | self.NO_SAMPLE:
                continue
            sample = next(iter(op.sample_inputs("cpu", torch.float32)), None)
            if sample is None:
                continue
            operands = (sample.input, sample.args, sample.kwargs)
            try:
                want = self.dtypes(op, "cuda", operands)
            except Exception:
                continue
            got = self.dtypes(op, "npu", operands)
            if got != want:
                different[op.full_name] = (want, got)
        self.assertEqual(different, {})

    def dtypes(self, op, device, operands):
        fake = FakeTensorMode(allow_non_fake_inputs=True) if device == "cuda" else contextlib.nullcontext()

        def place(value):
            if not isinstance(value, torch.Tensor):
                return value
            if device == "npu":
                return value.to(device)
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)

        with fake:
            given, args, kwargs = pytree.tree_map(place, operands)
            torch.set_autocast_dtype(device, torch.float16)
            torch.set_autocast_enabled(device, True)
            try:
                result = op(given, *args, **kwargs)
            finally:
                torch.set_autocast_enabled(device, False)
        return [leaf.dtype for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


class TestScalerWaits(TestCase):
    def test_one_wait_a_step(self):
        """As on CUDA: whether a gradient overflowed is asked once for each optimizer, and nothing else waits."""
        params = [torch.nn.Parameter(torch.ones(3, device="npu")) for _ in range(5)]
        optimizer = torch.optim.AdamW(params, foreach=True)
        scaler = torch.amp.GradScaler("npu")
        waits = []
        for _ in range(2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.npu.set_sync_debug_mode("warn")
                try:
                    scaler.scale(sum(p.sum() for p in params)).backward()
                    scaler.unscale_(optimizer)
                    scaler.step(optimizer)
                    scaler.update()
                finally:
                    torch.npu.set_sync_debug_mode("default")
            waits.append(sum("synchroniz" in str(w.message) for w in caught))
            optimizer.zero_grad()
        self.assertEqual(waits[1], 1)


if __name__ == "__main__":
    run_tests()
