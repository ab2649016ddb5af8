"""apex.amp: levels, dtypes, scales, several losses and optimizers, combined gradients, checkpoints, misuse."""

import contextlib
import copy
import io
import itertools
import threading
import unittest

from apex import amp
from apex.amp._amp_state import _amp_state
from apex.optimizers import NpuFusedAdamW, NpuFusedSGD
from torch.nn import functional as F

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)
        self.seen = {}

    def forward(self, x):
        y = self.conv(x)
        z = self.bn(y)
        logits = self.fc(F.relu(z).mean((2, 3)))
        self.seen = {"in": x.dtype, "conv": y.dtype, "bn": z.dtype, "fc": logits.dtype}
        return logits


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(6, 3, 4, 4, generator=generator), torch.randint(5, (6,), generator=generator)


def sgd(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=1e-3)


def fused_sgd(params):
    return NpuFusedSGD(params, lr=0.1, momentum=0.9, weight_decay=1e-3)


class AmpCase(unittest.TestCase):
    def tearDown(self):
        amp.initialize([], enabled=False)

    def start(self, model=None, make=sgd, **options):
        model = (model or Net()).npu()
        return amp.initialize(model, make(model.parameters()), verbosity=0, **options)

    def train(self, model, optimizer, steps, first=0, scaled=True):
        losses = []
        for step in range(first, first + steps):
            images, labels = batch(step)
            loss = F.cross_entropy(model(images.npu()), labels.npu())
            optimizer.zero_grad()
            if scaled:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses


class TestLevels(AmpCase):
    def test_dtypes(self):
        half = torch.float16
        full = torch.float32
        for level, dtype, want, weights in (
            ("O0", None, {"in": full, "conv": full, "bn": full, "fc": full}, {full}),
            ("O1", None, {"in": full, "conv": half, "bn": full, "fc": half}, {full}),
            ("O2", None, {"in": half, "conv": half, "fc": half}, {half, full}),
            ("O3", None, {"in": half, "conv": half, "bn": half, "fc": half}, {half}),
            ("O1", torch.bfloat16, {"conv": torch.bfloat16, "bn": full, "fc": torch.bfloat16}, {full}),
            ("O2", torch.bfloat16, {"in": torch.bfloat16, "conv": torch.bfloat16}, {torch.bfloat16, full}),
        ):
            with self.subTest(level, dtype=dtype):
                model, optimizer = self.start(opt_level=level, cast_model_type=dtype)
                out = model(batch(0)[0].npu())
                self.assertEqual({k: model.seen[k] for k in want}, want)
                self.assertEqual({p.dtype for p in model.parameters()}, weights)
                self.assertEqual({p.dtype for p in amp.master_params(optimizer)}, {full} if level != "O3" else {half})
                self.assertEqual(out.dtype, model.seen["fc"] if level == "O1" else full)
                self.assertEqual(F.softmax(out.to(half), -1).dtype, full if level == "O1" else half)
                self.assertEqual(model.bn.weight.dtype, half if level == "O3" else full)

    def test_close_to_fp32(self):
        model = Net().npu()
        want = self.train(model, sgd(model.parameters()), 8, scaled=False)
        for level, combine, make, dtype in itertools.product(
            ("O0", "O1", "O2"), (None, True), (sgd, fused_sgd), (None, torch.bfloat16)
        ):
            if level == "O0" and dtype:
                continue
            with self.subTest(level, combine=combine, make=make.__name__, dtype=dtype):
                options = {"opt_level": level, "combine_grad": combine, "cast_model_type": dtype}
                model, optimizer = self.start(make=make, loss_scale=128.0, **options)
                got = self.train(model, optimizer, 8)
                tolerance = 1e-5 if level == "O0" else 2e-2 if dtype is None else 8e-2
                for g, w in zip(got, want, strict=True):
                    self.assertAlmostEqual(g, w, delta=tolerance)

    def test_combined_is_the_same(self):
        """The same numbers with and without combined gradients, plain and fused optimizer, missing gradients."""

        class Two(Net):
            def __init__(self):
                super().__init__()
                self.unused, self.shared = nn.Linear(3, 3), self.fc

            def forward(self, x):
                return super().forward(x) + self.shared.weight.sum()

        for level in ("O1", "O2"):
            results = []
            for combine, make in ((None, sgd), (True, sgd), (True, fused_sgd), (None, fused_sgd)):
                model, optimizer = self.start(Two(), make, opt_level=level, loss_scale=64.0, combine_grad=combine)
                self.train(model, optimizer, 4)
                results.append([p.detach().float().cpu() for p in amp.master_params(optimizer)])
            for other in results[1:]:
                for p, q in zip(results[0], other, strict=True):
                    torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)

    def test_o2_against_hand_written_masters(self):
        """Step by step: a half model on the npu, fp32 copies, gradients divided by the scale."""
        model, optimizer = self.start(opt_level="O2", loss_scale=32.0, combine_grad=True)
        reference = Net().npu()
        masters = [p.detach().clone() for p in reference.parameters()]
        reference.conv.half(), reference.fc.half()
        plain = torch.optim.SGD(masters, lr=0.1, momentum=0.9, weight_decay=1e-3)
        for step in range(4):
            images, labels = batch(step)
            loss = F.cross_entropy(reference(images.npu().half()).float(), labels.npu())
            reference.zero_grad()
            (loss * 32.0).backward()
            for p, m in zip(reference.parameters(), masters, strict=True):
                m.grad = p.grad.float() / 32.0
            plain.step()
            with torch.no_grad():
                for p, m in zip(reference.parameters(), masters, strict=True):
                    p.copy_(m)
            self.train(model, optimizer, 1, first=step)
        for p, m in zip(amp.master_params(optimizer), masters, strict=True):
            torch.testing.assert_close(p.detach().cpu(), m.cpu(), rtol=1e-5, atol=1e-6)
        for p, m in zip(model.parameters(), amp.master_params(optimizer), strict=True):
            torch.testing.assert_close(p.detach(), m.detach().to(p.dtype), rtol=0, atol=0)

    def test_banner(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            model = Net().npu()
            amp.initialize(model, sgd(model.parameters()), opt_level="O2", loss_scale=1024.0)
        text = out.getvalue()
        for line in (
            "Selected optimization level O2:  FP16 training with FP32 batchnorm and FP32 master weights.",
            "Defaults for this optimization level are:",
            "Processing user overrides (additional kwargs that are not None)...",
            "After processing overrides, optimization options are:",
            "enabled                : True",
            "loss_scale             : 1024.0",
        ):
            self.assertIn(line, text)

    def test_scripts_beside_wrapped_functions(self):
        """TorchScript compiles what O1 has wrapped, as if it had not."""
        self.start(opt_level="O1")
        script = torch.jit.script(torch.nn.BatchNorm2d(3).eval())
        x = torch.randn(2, 3, 4, 4)
        self.assertTrue(torch.equal(script(x), torch.nn.BatchNorm2d(3).eval()(x)))

    def test_other_threads_cast(self):
        model, _ = self.start(opt_level="O1")
        seen = []
        thread = threading.Thread(target=lambda: seen.append(model(batch(0)[0].npu()).dtype))
        thread.start()
        thread.join()
        self.assertEqual(seen, [torch.float16])

    def test_nested_inputs_and_outputs(self):
        class Nested(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)

            def forward(self, x, *, more):
                self.seen = (x["a"][0].dtype, more.dtype, x["n"].dtype)
                return {"y": (self.fc(x["a"][0]), x["n"])}

        model, _ = self.start(Nested(), opt_level="O2")
        x = {"a": [torch.ones(2, 3, device="npu")], "n": torch.ones(1, dtype=torch.int64, device="npu")}
        out = model(x, more=torch.ones(1, device="npu"))
        self.assertEqual(model.seen, (torch.float16, torch.float16, torch.int64))
        self.assertEqual((out["y"][0].dtype, out["y"][1].dtype), (torch.float32, torch.int64))

    def test_checkpointing_and_hooks(self):
        from torch.utils.checkpoint import checkpoint

        class Checkpointed(Net):
            def forward(self, x):
                return checkpoint(super().forward, x, use_reentrant=False)

        for level in ("O1", "O2"):
            results = []
            for kind in (Net, Checkpointed):
                model, optimizer = self.start(kind(), opt_level=level, loss_scale=16.0)
                calls = []
                model.register_forward_hook(lambda m, i, o, calls=calls: calls.append(o.dtype))
                results.append(self.train(model, optimizer, 3))
                self.assertEqual(len(calls), 3)
            for a, b in zip(*results, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-4)


class TestLossScale(AmpCase):
    def overflow(self, model, optimizer, combine=False):
        images, labels = batch(0)
        loss = F.cross_entropy(model(images.npu()), labels.npu()) * float("inf")
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()

    def test_overflow_skips_the_step(self):
        for level, combine in itertools.product(("O1", "O2"), (None, True)):
            with self.subTest(level, combine=combine):
                model, optimizer = self.start(opt_level=level, combine_grad=combine, dynamic_init_scale=256.0)
                self.train(model, optimizer, 1)
                before = copy.deepcopy(model.state_dict())
                before.pop("bn.running_mean"), before.pop("bn.running_var"), before.pop("bn.num_batches_tracked")
                out = io.StringIO()
                _amp_state.verbosity = 1
                with contextlib.redirect_stdout(out):
                    self.overflow(model, optimizer)
                self.assertEqual(
                    out.getvalue(), "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 128.0\n"
                )
                for name, value in before.items():
                    self.assertTrue(torch.equal(model.state_dict()[name], value), name)
                self.train(model, optimizer, 1)
                self.assertFalse(torch.equal(model.state_dict()["fc.weight"], before["fc.weight"]))
                self.assertEqual(amp.state_dict(), {"loss_scaler0": {"loss_scale": 128.0, "unskipped": 1}})

    def test_growth_and_bounds(self):
        model, optimizer = self.start(
            opt_level="O1", dynamic_init_scale=8.0, scale_window=2, max_loss_scale=16.0, min_loss_scale=4.0
        )
        scales = []
        for _ in range(5):
            self.train(model, optimizer, 1)
            scales.append(_amp_state.loss_scalers[0].loss_scale())
        self.assertEqual(scales, [8.0, 16.0, 16.0, 16.0, 16.0])
        for _ in range(4):
            self.overflow(model, optimizer)
        self.assertEqual(_amp_state.loss_scalers[0].loss_scale(), 4.0)

    def test_minus_one_is_dynamic(self):
        for given, dynamic in ((-1, True), ("dynamic", True), (128, False), ("128.0", False)):
            self.start(opt_level="O2", loss_scale=given)
            self.assertEqual(_amp_state.loss_scalers[0].dynamic, dynamic)

    def test_several_losses_and_optimizers(self):
        models = [Net().npu(), Net().npu()]
        optimizers = [sgd(m.parameters()) for m in models]
        models, optimizers = amp.initialize(models, optimizers, opt_level="O1", num_losses=2, verbosity=0)
        images, labels = batch(0)
        losses = [F.cross_entropy(m(images.npu()), labels.npu()) for m in models]
        before = [p.detach().clone() for p in amp.master_params(optimizers[0])]
        with amp.scale_loss(losses[0] * float("nan"), optimizers[0], loss_id=0) as scaled:
            scaled.backward()
        with amp.scale_loss(losses[1], optimizers[1], loss_id=1) as scaled:
            scaled.backward()
        for optimizer in optimizers:
            optimizer.step()
        self.assertEqual([s.loss_scale() for s in _amp_state.loss_scalers], [2.0**15, 2.0**16])
        for p, q in zip(amp.master_params(optimizers[0]), before, strict=True):
            self.assertTrue(torch.equal(p, q))
        with amp.scale_loss(
            sum(F.cross_entropy(m(images.npu()), labels.npu()) for m in models), optimizers, loss_id=1
        ) as scaled:
            scaled.backward()
        for optimizer in optimizers:
            optimizer.step()

    def test_accumulation(self):
        """Two halves of a batch, unscaled after each or at the end, are the whole batch."""
        for level, combine, delay in itertools.product(("O1", "O2"), (None, True), (False, True)):
            with self.subTest(level, combine=combine, delay=delay):
                model, optimizer = self.start(opt_level=level, loss_scale=8.0, combine_grad=combine)
                model.eval()
                images, labels = (t.npu() for t in batch(0))
                grads = []
                for parts in (1, 2):
                    optimizer.zero_grad()
                    for i in range(parts):
                        some = slice(i * 6 // parts, (i + 1) * 6 // parts)
                        loss = F.cross_entropy(model(images[some]), labels[some], reduction="sum")
                        with amp.scale_loss(loss, optimizer, delay_unscale=delay and i + 1 < parts) as scaled:
                            scaled.backward()
                    grads.append([p.grad.clone() for p in amp.master_params(optimizer)])
                for p, q in zip(*grads, strict=True):
                    torch.testing.assert_close(p, q, rtol=2e-2, atol=2e-2)

    def test_checkpoint(self):
        model, optimizer = self.start(opt_level="O2", dynamic_init_scale=64.0, make=fused_sgd, combine_grad=True)
        self.train(model, optimizer, 2)
        file = io.BytesIO()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "amp": amp.state_dict()}
        self.assertEqual({v.dtype for v in state["model"].values() if v.is_floating_point()}, {torch.float32})
        torch.save(state, file)
        want = self.train(model, optimizer, 2, first=2)
        file.seek(0)
        saved = torch.load(file, map_location="npu", weights_only=True)
        model = Net().npu()
        optimizer = fused_sgd(model.parameters())
        model, optimizer = amp.initialize(model, optimizer, opt_level="O2", combine_grad=True, verbosity=0)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        amp.load_state_dict(saved["amp"])
        self.assertEqual(_amp_state.loss_scalers[0].loss_scale(), 64.0)
        for a, b in zip(self.train(model, optimizer, 2, first=2), want, strict=True):
            self.assertAlmostEqual(a, b, delta=2e-2)

    def test_no_wait_with_a_static_scale(self):
        model, optimizer = self.start(opt_level="O2", loss_scale=64.0, combine_grad=True, make=NpuFusedAdamW)
        self.train(model, optimizer, 1)
        images, labels = (t.npu() for t in batch(0))
        torch.npu.synchronize()
        torch.npu.set_sync_debug_mode("error")
        try:
            optimizer.zero_grad()
            with amp.scale_loss(F.cross_entropy(model(images), labels), optimizer) as scaled:
                scaled.backward()
            optimizer.clip_optimizer_grad_norm_fused(1.0)
            optimizer.step()
        finally:
            torch.npu.set_sync_debug_mode("default")


class TestCombined(AmpCase):
    def test_a_fused_step_copies_nothing(self):
        """amp's flat tensors are the fused optimizer's: a step is one operator, and with masters one more."""

        def launched():
            torch.npu.synchronize()
            return torch._C._npu_simulatorCounters(0)["ops_launched"]

        for level, make, expected in (("O1", fused_sgd, 1), ("O2", fused_sgd, 3), ("O1", NpuFusedAdamW, 2)):
            model, optimizer = self.start(make=make, opt_level=level, loss_scale=4.0, combine_grad=True)
            self.train(model, optimizer, 2)
            images, labels = (t.npu() for t in batch(7))
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            before = launched()
            optimizer.step()
            with self.subTest(level, make=make):
                self.assertEqual(launched() - before, expected)
            amp.initialize([], enabled=False)

    def test_gradients_are_parts(self):
        model, optimizer = self.start(opt_level="O1", loss_scale=4.0, combine_grad=True)
        self.train(model, optimizer, 1)
        (flat,) = optimizer.get_model_combined_grads()
        total = sum(float(p.grad.double().square().sum()) for p in model.parameters())
        self.assertAlmostEqual(float(flat.double().square().sum()), total, delta=1e-6)
        norm = float(optimizer.clip_optimizer_grad_norm_fused(1e-3))
        self.assertAlmostEqual(norm, total**0.5, delta=1e-5)
        self.assertLess(
            float(torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters()]))), 2e-3
        )

    def test_replaced_gradients_are_taken_in_or_refused(self):
        for check in (None, True):
            model, optimizer = self.start(
                opt_level="O1", loss_scale=4.0, combine_grad=True, check_combined_tensors=check
            )
            images, labels = (t.npu() for t in batch(0))
            with amp.scale_loss(F.cross_entropy(model(images), labels), optimizer) as scaled:
                scaled.backward()
                model.fc.weight.grad = torch.full_like(model.fc.weight, 8.0)
            self.assertTrue(bool((model.fc.weight.grad == 2.0).all()))
            model.fc.weight.grad = torch.zeros_like(model.fc.weight)
            before = model.fc.weight.detach().clone()
            refused = self.assertRaisesRegex(RuntimeError, "no longer part of the combined gradients")
            with refused if check else contextlib.nullcontext():
                optimizer.step()
                torch.testing.assert_close(model.fc.weight.detach(), before * (1 - 0.1 * 1e-3))

    def test_added_group(self):
        for level, combine in itertools.product(("O1", "O2"), (None, True)):
            model, optimizer = self.start(opt_level=level, loss_scale=4.0, combine_grad=combine)
            extra = nn.Parameter(torch.ones(3, device="npu"))
            optimizer.add_param_group({"params": [extra]})
            images, labels = (t.npu() for t in batch(0))
            with amp.scale_loss(F.cross_entropy(model(images), labels) + extra.sum(), optimizer) as scaled:
                scaled.backward()
            optimizer.step()
            torch.testing.assert_close(extra.detach().cpu(), torch.full((3,), 1 - 0.1 * (1 + 1e-3)))


class TestFunctions(AmpCase):
    def test_decorators_and_registration(self):
        module = type("Module", (), {})()
        module.__name__ = "module"
        module.both = lambda a, b: (a.dtype, b.dtype)
        module.one = lambda a, b: (a.dtype, b.dtype)
        amp.register_half_function(module, "both")
        amp.register_promote_function(module, "one")
        full, half = torch.ones(1, device="npu"), torch.ones(1, device="npu", dtype=torch.float16)
        self.assertEqual(module.both(full, half), (torch.float32, torch.float16))
        self.start(opt_level="O1")
        self.assertEqual(module.both(full, half), (torch.float16, torch.float16))
        self.assertEqual(module.one(full, half), (torch.float32, torch.float32))
        to_float = amp.float_function(lambda a, b: (a.dtype, b.dtype))
        self.assertEqual(to_float(half, b=half), (torch.float32, torch.float32))
        with amp.disable_casts():
            self.assertEqual(to_float(half, b=half), (torch.float16, torch.float16))
            self.assertEqual((torch.ones(2, 2, device="npu") @ torch.ones(2, 2, device="npu")).dtype, torch.float32)
        self.assertEqual((torch.ones(2, 2, device="npu") @ torch.ones(2, 2, device="npu")).dtype, torch.float16)
        with self.assertRaisesRegex(ValueError, "No function named none in module module"):
            amp.register_float_function(module, "none")

    def test_binary_cross_entropy(self):
        p, y = torch.full((3,), 0.5, device="npu", dtype=torch.float16), torch.ones(3, device="npu")
        self.start(opt_level="O1")
        with self.assertRaisesRegex(RuntimeError, "unsafe to autocast"):
            F.binary_cross_entropy(p, y)
        original = F.binary_cross_entropy
        try:
            amp.register_float_function(F, "binary_cross_entropy")
            self.assertEqual(F.binary_cross_entropy(p, y).dtype, torch.float32)
        finally:
            F.binary_cross_entropy = original

    def test_user_cast_preferred(self):
        matrix = torch.ones(2, 2, device="npu")
        product = amp.float_function(lambda a: (a @ a).dtype)
        self.start(opt_level="O1")
        self.assertEqual(product(matrix), torch.float16)
        self.start(opt_level="O1", user_cast_preferred=True)
        self.assertEqual(product(matrix), torch.float32)

    def test_steps_are_not_cast(self):
        class Sees(torch.optim.SGD):
            def step(self, closure=None):
                self.seen = (torch.ones(2, 2, device="npu") @ torch.ones(2, 2, device="npu")).dtype

        model = Net().npu()
        model, optimizer = amp.initialize(model, Sees(model.parameters(), lr=0.1), opt_level="O1", verbosity=0)
        optimizer.step()
        self.assertEqual(optimizer.seen, torch.float32)

    def test_disabled(self):
        model = Net().npu()
        optimizer = sgd(model.parameters())
        self.assertEqual(amp.initialize(model, optimizer, enabled=False), (model, optimizer))
        loss = torch.ones(1, device="npu")
        with amp.scale_loss(loss, optimizer) as scaled:
            self.assertIs(scaled, loss)
        self.assertEqual(amp.state_dict(), {})


class TestMisuse(AmpCase):
    def test_initialize(self):
        model = Net().npu()
        optimizer = sgd(model.parameters())
        for options, error, text in (
            ({"opt_level": "02"}, RuntimeError, 'Unexpected optimization level 02.*"O2", with the letter O'),
            ({"opt_level": "O1", "keep_batchnorm_fp32": True}, RuntimeError, "leave keep_batchnorm_fp32 out"),
            ({"opt_level": "O2", "keep_batchnorm_fp32": "yes"}, ValueError, "not 'yes'"),
            ({"opt_level": "O1", "master_weights": True}, RuntimeError, "leave master_weights out"),
            ({"opt_level": "O2", "patch_torch_functions": True}, RuntimeError, "opt_level='O1'"),
            ({"loss_scale": 0}, ValueError, "positive number"),
            ({"loss_scale": float("nan")}, ValueError, "positive number"),
            ({"loss_scale": "big"}, ValueError, "positive number.*'big'"),
            ({"loss_scale": "often"}, ValueError, "often"),
            ({"cast_model_type": torch.int32}, ValueError, "torch.int32"),
            ({"num_losses": 0}, ValueError, "at least 1"),
            ({"scale_window": 0}, ValueError, "scale_window >= 1"),
            ({"ddp_replica_count": 0}, ValueError, "positive int"),
        ):
            with self.subTest(options), self.assertRaisesRegex(error, text):
                amp.initialize(model, optimizer, verbosity=0, **options)
        with self.assertRaisesRegex(TypeError, "models is a Module"):
            amp.initialize(3, optimizer, verbosity=0)
        with self.assertRaisesRegex(TypeError, "optimizers holds a int"):
            amp.initialize(model, [optimizer, 3], verbosity=0)
        with self.assertRaisesRegex(RuntimeError, "conv.weight is torch.float16, expected torch.float32"):
            amp.initialize(Net().npu().half(), optimizer, verbosity=0)
        with self.assertRaisesRegex(RuntimeError, "conv.weight is on the CPU"):
            amp.initialize(Net(), optimizer, verbosity=0)
        with self.assertRaisesRegex(RuntimeError, "wrapped in DataParallel"):
            amp.initialize(nn.DataParallel(model), optimizer, verbosity=0)
        # An initialize that failed leaves nothing switched on.
        self.assertEqual((torch.ones(2, 2, device="npu") @ torch.ones(2, 2, device="npu")).dtype, torch.float32)

    def test_scale_loss(self):
        model, optimizer = self.start(opt_level="O1")
        loss = torch.ones(1, device="npu")
        with self.assertRaisesRegex(RuntimeError, "not given to amp.initialize"):
            amp.scale_loss(loss, sgd(model.parameters())).__enter__()
        with self.assertRaisesRegex(RuntimeError, "loss_id=3, but .* num_losses=1"):
            amp.scale_loss(loss, optimizer, loss_id=3).__enter__()
        with self.assertRaisesRegex(RuntimeError, "takes no closure"):
            optimizer.step(lambda: loss)
        with self.assertRaisesRegex(KeyError, "no loss scaler is called model"):
            amp.load_state_dict({"model": 1})

    def test_an_exception_inside(self):
        model, optimizer = self.start(opt_level="O2", loss_scale=4.0, combine_grad=True)
        stopped = self.assertRaisesRegex(ValueError, "stop")
        with stopped, amp.scale_loss(model(batch(0)[0].npu()).sum(), optimizer):
            raise ValueError("stop")
        self.train(model, optimizer, 2)

    def test_other_parts(self):
        for name, text in (
            ("from apex.normalization import FusedLayerNorm", "from torch.nn import LayerNorm"),
            ("from apex.optimizers import FusedSGD", "NpuFusedSGD"),
            ("import apex; apex.multi_tensor_apply", "CUDA kernels"),
            ("from apex.multi_tensor_apply import multi_tensor_applier", "use torch._foreach"),
            ("from apex.fp16_utils import FP16_Optimizer", "use apex.amp"),
            ("import apex.transformer.parallel_state", "CUDA kernels"),
            ("from apex.parallel import LARC", "NpuFusedLamb"),
        ):
            with self.assertRaisesRegex(ImportError, text):
                exec(name)
        from apex.parallel import convert_syncbn_model

        self.assertIsInstance(convert_syncbn_model(Net()).bn, nn.SyncBatchNorm)


if __name__ == "__main__":
    unittest.main()
