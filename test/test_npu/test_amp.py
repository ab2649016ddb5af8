"""Mixed precision: autocast regions, custom autograd functions in them, the gradient scaler."""

import threading

from common_utils import TestCase, run_tests

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

    def test_state_dict(self):
        scaler = torch.npu.amp.GradScaler(init_scale=32.0)
        other = torch.npu.amp.GradScaler()
        other.load_state_dict(scaler.state_dict())
        self.assertEqual(other.get_scale(), 32.0)


if __name__ == "__main__":
    run_tests()
