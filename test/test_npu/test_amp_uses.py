"""torch.amp as scripts use it: nesting, threads, the cache of casts, compilation, copies of scalers, several
optimizers, clipping, the foreach and fused paths, an infinity in one of many parameters."""

import copy
import io
import pickle
import threading
import unittest

import torch
from torch import nn


def half_of(x: torch.Tensor) -> torch.dtype:
    return torch.mm(x, x).dtype


class TestAutocast(unittest.TestCase):
    def setUp(self):
        self.x = torch.randn(4, 4, device="npu")

    def test_nesting(self):
        with torch.autocast("npu", torch.float16):
            self.assertEqual(half_of(self.x), torch.float16)
            with torch.autocast("npu", torch.bfloat16):
                self.assertEqual(half_of(self.x), torch.bfloat16)
                with torch.autocast("npu", enabled=False):
                    self.assertEqual(half_of(self.x), torch.float32)
                    self.assertFalse(torch.is_autocast_enabled("npu"))
                self.assertEqual(half_of(self.x), torch.bfloat16)
                with torch.autocast("cpu", torch.float16):
                    self.assertEqual(half_of(self.x), torch.bfloat16)
                    self.assertEqual(half_of(self.x.cpu()), torch.float16)
            self.assertEqual(half_of(self.x), torch.float16)
            with self.assertRaises(ZeroDivisionError), torch.autocast("npu", torch.bfloat16):
                1 / 0  # noqa: B018
            self.assertEqual(half_of(self.x), torch.float16)
        self.assertEqual(half_of(self.x), torch.float32)

    def test_threads_have_their_own(self):
        seen = {}

        def work(name, enabled):
            with torch.autocast("npu", torch.bfloat16, enabled=enabled):
                barrier.wait()
                seen[name] = [half_of(self.x) for _ in range(20)]

        barrier = threading.Barrier(3)
        with torch.autocast("npu", torch.float16):
            threads = [threading.Thread(target=work, args=(i, i > 0)) for i in range(2)]
            for thread in threads:
                thread.start()
            barrier.wait()
            self.assertEqual({half_of(self.x) for _ in range(20)}, {torch.float16})
            for thread in threads:
                thread.join()
        self.assertEqual((set(seen[0]), set(seen[1])), ({torch.float32}, {torch.bfloat16}))

    def casts(self, run) -> int:
        with torch.autograd.profiler.profile() as profile:
            run()
        return sum(event.count for event in profile.key_averages() if event.key == "aten::_to_copy")

    def test_cache_of_casts(self):
        weight = nn.Parameter(self.x.clone())
        half = self.x.half()

        def use(cache):
            with torch.autocast("npu", torch.float16, cache_enabled=cache):
                for _ in range(5):
                    torch.mm(half, weight)

        self.assertEqual((self.casts(lambda: use(True)), self.casts(lambda: use(False))), (1, 5))
        # The cache ends with the region: a step in between is seen.
        with torch.autocast("npu", torch.float16):
            before = torch.mm(half, weight)
        with torch.no_grad():
            weight.mul_(2)
        with torch.autocast("npu", torch.float16):
            after = torch.mm(half, weight)
        torch.testing.assert_close(after, before * 2)

    def test_gradients_come_back_in_fp32(self):
        weight, x = nn.Parameter(self.x.clone()), self.x.clone().requires_grad_()
        with torch.autocast("npu", torch.bfloat16):
            loss = torch.nn.functional.mse_loss(torch.mm(x, weight), torch.zeros_like(x))
        self.assertEqual(loss.dtype, torch.float32)
        loss.backward()
        self.assertEqual((weight.grad.dtype, x.grad.dtype), (torch.float32, torch.float32))
        exact = [t.detach().cpu().requires_grad_() for t in (x, weight)]
        torch.mm(*exact).square().mean().backward()
        for got, reference in zip((x.grad, weight.grad), (e.grad for e in exact), strict=True):
            torch.testing.assert_close(got.cpu(), reference, rtol=0.05, atol=0.02)

    def test_compiled(self):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).npu()

        def run(x):
            with torch.autocast("npu", torch.bfloat16):
                return model(x)

        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            compiled = torch.compile(run, backend=backend)
            self.assertEqual(compiled(self.x).dtype, torch.bfloat16)
            torch.testing.assert_close(compiled(self.x), run(self.x))
            with torch.autocast("npu", torch.float16):
                outside = torch.compile(model, backend=backend)(self.x)
            self.assertEqual(outside.dtype, torch.float16)
            outside.float().sum().backward()
        torch._dynamo.reset()


def scalers():
    yield torch.amp.GradScaler("npu", init_scale=8.0, growth_interval=2)
    yield torch.npu.amp.GradScaler(init_scale=8.0, growth_interval=2)


class TestScaler(unittest.TestCase):
    def step(self, scaler, params, optimizers, factor):
        loss = sum((p * factor).sum() for p in params)
        for optimizer in optimizers:
            optimizer.zero_grad()
        scaler.scale(loss).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()

    def test_growth_and_backoff(self):
        for scaler in scalers():
            p = nn.Parameter(torch.ones(3, device="npu"))
            optimizer = torch.optim.SGD([p], 0.0)
            scales = []
            for factor in (1, 1, 1, float("inf"), 1, 1, float("nan")):
                self.step(scaler, [p], [optimizer], factor)
                scales.append(scaler.get_scale())
            self.assertEqual(scales, [8, 16, 16, 8, 8, 16, 8])

    def test_copies(self):
        for scaler in scalers():
            p = nn.Parameter(torch.ones(3, device="npu"))
            optimizer = torch.optim.SGD([p], 0.0)
            self.step(scaler, [p], [optimizer], 1)
            for twin in (copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler)), type(scaler).__new__(type(scaler))):
                if not hasattr(twin, "_device"):
                    twin.__init__() if type(twin) is not torch.amp.GradScaler else twin.__init__("npu")
                    file = io.BytesIO()
                    torch.save(scaler.state_dict(), file)
                    file.seek(0)
                    twin.load_state_dict(torch.load(file))
                self.assertEqual(twin.state_dict(), scaler.state_dict())
                self.step(twin, [p], [optimizer], 1)
                self.assertEqual(twin.get_scale(), 16.0)
                self.assertEqual(scaler.get_scale(), 8.0)

    def test_several_optimizers(self):
        for scaler in scalers():
            good, bad = (nn.Parameter(torch.ones(3, device="npu")) for _ in range(2))
            optimizers = [torch.optim.SGD([good], 0.5), torch.optim.SGD([bad], 0.5)]
            scaler.scale(good.sum() + (bad * float("inf")).sum()).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            self.assertEqual((good.tolist(), bad.tolist()), ([0.5] * 3, [1.0] * 3))
            self.assertEqual(scaler.get_scale(), 4.0)

    def test_unscale_then_clip(self):
        for scaler in scalers():
            p = nn.Parameter(torch.ones(4, device="npu"))
            optimizer = torch.optim.SGD([p], 1.0)
            scaler.scale((p * 3).sum()).backward()
            scaler.unscale_(optimizer)
            self.assertEqual(p.grad.tolist(), [3.0] * 4)
            norm = torch.nn.utils.clip_grad_norm_([p], 1.0)
            self.assertAlmostEqual(norm.item(), 6.0, places=5)
            scaler.step(optimizer)
            scaler.update()
            torch.testing.assert_close(p.detach().cpu(), torch.full((4,), 0.5))
            scaler.scale(p.sum()).backward()
            scaler.unscale_(optimizer)
            with self.assertRaisesRegex(RuntimeError, "unscale_"):
                scaler.unscale_(optimizer)

    def test_an_infinity_in_one_of_many(self):
        ways = ({"foreach": True}, {"foreach": False}, {"fused": True})
        for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
            for way in ways:
                for where in (0, 57, 99):
                    params = [nn.Parameter(torch.ones(n % 7 + 1, device="npu")) for n in range(100)]
                    optimizer = make(params, 0.1, **way)
                    scaler = torch.amp.GradScaler("npu", init_scale=4.0)
                    for broken in (True, False):
                        factors = [float("inf") if broken and i == where else 1 for i in range(len(params))]
                        loss = sum(p.sum() * factor for p, factor in zip(params, factors, strict=True))
                        optimizer.zero_grad()
                        scaler.scale(loss).backward()
                        scaler.step(optimizer)
                        scaler.update()
                        moved = [p.lt(0.95).all().item() for p in params[:: 99 if where == 57 else 57]]
                        with self.subTest(make.__name__, **way, where=where, broken=broken):
                            self.assertEqual(set(moved), {not broken})
                            self.assertEqual(scaler.get_scale(), 2.0)

    def test_gradients_of_several_dtypes(self):
        params = [nn.Parameter(torch.ones(5, device="npu", dtype=d)) for d in (torch.float32, torch.bfloat16)]
        for value, expected in ((1.0, 0.5), (float("inf"), 1.0)):
            optimizer = torch.optim.SGD(params, 0.5)
            with torch.no_grad():
                for p in params:
                    p.fill_(1)
            scaler = torch.amp.GradScaler("npu", init_scale=4.0)
            optimizer.zero_grad()
            scaler.scale(params[0].sum() + (params[1] * value).sum().float()).backward()
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual([p[0].item() for p in params], [expected] * 2)

    def test_disabled_and_before_use(self):
        scaler = torch.amp.GradScaler("npu", enabled=False)
        p = nn.Parameter(torch.ones(2, device="npu"))
        optimizer = torch.optim.SGD([p], 0.5)
        self.step(scaler, [p], [optimizer], 1)
        self.assertEqual((p.tolist(), scaler.get_scale()), ([0.5, 0.5], 1.0))
        enabled = torch.amp.GradScaler("npu")
        with self.assertRaisesRegex(AssertionError, "scaler.scale"):
            enabled.step(optimizer)


if __name__ == "__main__":
    unittest.main()
