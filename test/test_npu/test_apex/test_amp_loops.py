"""apex.amp in whole training loops: DataParallel, closures, nested modules, saved and loaded in the middle, gradients
that are None, parameters that are shared, moved models."""

import contextlib
import copy
import io
import unittest

from apex import amp

import torch
from torch import nn


class Shared(nn.Module):
    """Nested modules; one weight is used by two of them."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.BatchNorm1d(6), nn.ReLU()))
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.body[0].weight
        self.unused = nn.Linear(6, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.tied(self.body(x)))


class UsesCase(unittest.TestCase):
    def tearDown(self):
        amp.initialize([], enabled=False)

    def initialize(self, model, optimizer, **options):
        with contextlib.redirect_stdout(io.StringIO()):
            return amp.initialize(model, optimizer, **{"verbosity": 0, "loss_scale": 128.0} | options)

    def losses(self, model, optimizer, steps=6, seed=1):
        generator = torch.Generator().manual_seed(seed)
        losses = []
        for _ in range(steps):
            x = torch.randn(16, 6, generator=generator)
            target = (x.sum(1) > 0).long().npu()
            loss = nn.functional.cross_entropy(model(x.npu()).float(), target)
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def build(self, level, combine, cast=torch.float16, seed=0, lr=0.1):
        torch.manual_seed(seed)
        model = Shared().npu()
        optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
        options = {"opt_level": level, "combine_grad": combine, "cast_model_type": self.cast(level, cast)}
        return self.initialize(model, optimizer, **options)

    @staticmethod
    def cast(level, dtype):
        return dtype if level in ("O2", "O3") else None


class TestLoops(UsesCase):
    def test_learns_with_nested_shared_and_unused_parameters(self):
        reference = None
        for level in ("O0", "O1", "O2"):
            for combine in (False, True):
                model, optimizer = self.build(level, combine)
                losses = self.losses(model, optimizer, 12)
                reference = reference or losses
                with self.subTest(level, combine=combine):
                    self.assertLess(abs(losses[-1] - reference[-1]), 0.05)
                    self.assertIs(model.tied.weight, model.body[0].weight)
                    self.assertIsNone(model.unused.weight.grad)
                amp.initialize([], enabled=False)

    def test_saved_and_loaded_in_the_middle(self):
        for level in ("O1", "O2"):
            for combine in (False, True):
                model, optimizer = self.build(level, combine)
                self.losses(model, optimizer, 3)
                file = io.BytesIO()
                torch.save([model.state_dict(), optimizer.state_dict(), amp.state_dict()], file)
                expected = self.losses(model, optimizer, 4, seed=5)
                amp.initialize([], enabled=False)
                model, optimizer = self.build(level, combine, seed=9)
                file.seek(0)
                for part, state in zip((model, optimizer, amp), torch.load(file), strict=True):
                    part.load_state_dict(state)
                with self.subTest(level, combine=combine):
                    self.assertEqual(self.losses(model, optimizer, 4, seed=5), expected)
                amp.initialize([], enabled=False)

    def test_zero_grad_in_either_way(self):
        for level in ("O1", "O2"):
            for combine in (False, True):
                runs = []
                for set_to_none in (True, False):
                    model, optimizer = self.build(level, combine)
                    plain = optimizer.zero_grad
                    optimizer.zero_grad = lambda plain=plain, n=set_to_none: plain(set_to_none=n)
                    runs.append(self.losses(model, optimizer, 4))
                    amp.initialize([], enabled=False)
                with self.subTest(level, combine=combine):
                    self.assertEqual(*runs)

    def test_closure(self):
        for level in ("O0", "O1"):
            model, optimizer = self.build(level, False)
            x, target = torch.randn(8, 6).npu(), torch.randint(2, (8,)).npu()

            def closure(model=model, optimizer=optimizer, x=x, target=target):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x).float(), target)
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
                return loss

            losses = [optimizer.step(closure).item() for _ in range(8)]
            with self.subTest(level):
                self.assertLess(losses[-1], losses[0])
            amp.initialize([], enabled=False)

    def test_data_parallel(self):
        if torch.npu.device_count() < 2:
            self.skipTest("needs two devices (ASCEND_SIM_DEVICE_COUNT=2)")
        for level in ("O1", "O2"):
            single_model, single_optimizer = self.build(level, False)
            single = self.losses(single_model.eval(), single_optimizer, 4)
            amp.initialize([], enabled=False)
            model, optimizer = self.build(level, False)
            parallel = nn.DataParallel(model.eval(), device_ids=[0, 1])
            with self.subTest(level):
                for a, b in zip(self.losses(parallel, optimizer, 4), single, strict=True):
                    self.assertAlmostEqual(a, b, delta=0.02)
            amp.initialize([], enabled=False)

    def test_deepcopy_and_a_move(self):
        model, optimizer = self.build("O2", True)
        self.losses(model, optimizer, 2)
        twin = copy.deepcopy(model)
        x = torch.randn(4, 6).npu()
        self.assertTrue(torch.equal(model.eval()(x), twin.eval()(x)))
        with torch.no_grad():
            twin.head.bias.add_(100)
        self.assertGreater((twin(x) - model(x)).min().item(), 99)  # the copy runs its own parameters
        self.assertEqual(twin.forward(x).dtype, torch.float32)
        self.assertEqual({p.dtype for p in model.head.parameters()}, {torch.float16})
        model.train().to("npu")
        self.assertTrue(all(l == l for l in self.losses(model, optimizer, 2)))  # noqa: E741

    def test_bfloat16(self):
        for level in ("O2", "O3"):
            model, optimizer = self.build(level, True, torch.bfloat16)
            self.assertEqual(model.head.weight.dtype, torch.bfloat16)
            losses = self.losses(model, optimizer, 12)
            self.assertLess(losses[-1], losses[0])
            amp.initialize([], enabled=False)

    def test_scale_of_a_skipped_step(self):
        torch.manual_seed(0)
        model = Shared().npu()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        options = {"opt_level": "O2", "combine_grad": True, "loss_scale": "dynamic", "verbosity": 1}
        model, optimizer = self.initialize(model, optimizer, **options)
        before = [p.detach().clone() for p in amp.master_params(optimizer)]
        loss = model(torch.full((4, 6), 1e4).npu()).float().sum() * 1e4
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
        line = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0"
        self.assertIn(line, text.getvalue())
        for p, q in zip(amp.master_params(optimizer), before, strict=True):
            self.assertTrue(torch.equal(p, q))


class TestGradientsToMasters(unittest.TestCase):
    """`_npu_unscale_into_`: gradients of any dtype, unscaled into flat fp32, and the flag of an overflow."""

    SHAPES = ((7,), (5, 3), (64, 32, 3, 3), (16, 5, 1, 1), (8, 1, 3, 3), (3, 4, 2, 2, 2), ())

    def run_op(self, grads, inverse):
        targets = [torch.full_like(g, 5, dtype=torch.float32) for g in grads]
        found = torch.zeros(1, device="npu")
        torch.ops.npu._npu_unscale_into_(targets, grads, found, torch.full((1,), inverse, device="npu"))
        return targets, found.item()

    def test_values(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            grads = [torch.randn(s).to(dtype) for s in self.SHAPES]
            for inverse in (1.0, 1 / 128, 3.0):
                targets, found = self.run_op([g.npu() for g in grads], inverse)
                self.assertEqual(found, 0)
                for got, g in zip(targets, grads, strict=True):
                    self.assertTrue(torch.equal(got.cpu(), g.float() * inverse), (dtype, inverse, g.shape))

    def test_gradients_of_convolutions_and_other_strides(self):
        grad = torch.nn.grad.conv2d_weight(
            torch.randn(2, 8, 9, 9).half().npu(), (16, 8, 3, 3), torch.randn(2, 16, 7, 7).half().npu()
        )
        last = torch.randn(8, 6, 3, 3).half().to(memory_format=torch.channels_last).npu()
        turned = torch.randn(6, 4).bfloat16().npu().t()
        for grads in ([grad], [grad, last], [turned]):
            targets, found = self.run_op(grads, 0.5)
            self.assertEqual(found, 0)
            for got, g in zip(targets, grads, strict=True):
                self.assertTrue(torch.equal(got.cpu(), g.cpu().float() * 0.5))

    def test_an_infinity_anywhere(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            for value in (float("inf"), -float("inf"), float("nan")):
                for index in range(len(self.SHAPES)):
                    grads = [torch.ones(s, dtype=dtype, device="npu") for s in self.SHAPES]
                    grads[index].view(-1)[-1] = value
                    self.assertEqual(self.run_op(grads, 0.5)[1], 1, (dtype, value, index))
                    found = torch.zeros(1, device="npu")
                    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.ones(1, device="npu"))
                    self.assertEqual(found.item(), 1)

    def test_misuse(self):
        half = torch.ones(4, dtype=torch.float16, device="npu")
        found, one = torch.zeros(1, device="npu"), torch.ones(1, device="npu")
        with self.assertRaisesRegex(RuntimeError, "as many targets as gradients, got 0 and 1"):
            torch.ops.npu._npu_unscale_into_([], [half], found, one)
        with self.assertRaisesRegex(RuntimeError, r"of the gradient's shape \[4\], got \[1\]"):
            torch.ops.npu._npu_unscale_into_([found.clone()], [half], found, one)
        with self.assertRaisesRegex(RuntimeError, "found_inf must be a 1-element tensor"):
            torch.ops.npu._npu_unscale_into_([half.float()], [half], torch.zeros(2, device="npu"), one)


if __name__ == "__main__":
    unittest.main()
