"""torch_npu.contrib and its neighbours: results against plain torch on the CPU."""

import math
import os
import tempfile
import threading
import time

import numpy as np
import torch.nn.functional as F
import torch_npu
from common_utils import TestCase, run_tests
from torch_npu.contrib import function, module
from torch_npu.testing.testcase import TestCase as PluginCase

import torch


class TestFunctions(TestCase):
    def test_matmul_transpose(self):
        a, b = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
        there = [t.npu().requires_grad_() for t in (a, b)]
        here = [t.clone().requires_grad_() for t in (a, b)]
        y, expected = function.matmul_transpose(*there), here[0] @ here[1].mT
        self.assertEqual(y, expected, prec=1e-5)
        grad = torch.randn(2, 3, 5)
        found, wanted = torch.autograd.grad(y, there, grad.npu()), torch.autograd.grad(expected, here, grad)
        self.assertEqual(list(found), list(wanted), prec=1e-5)

    def test_softmax_dropout(self):
        mask, scores = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
        expected = torch.softmax(mask + scores / math.sqrt(16), -1)
        for training in (False, True):
            found = function.fuse_add_softmax_dropout(
                training, torch.nn.Identity(), mask.npu(), scores.npu(), 16, p=0.0
            )
            self.assertEqual(found, expected, prec=1e-5)

    def test_index_put_and_roll(self):
        x = torch.randn(3, 4, 5, 2)
        self.assertEqual(function.npu_fast_condition_index_put(x.npu(), x.npu() > 0, 7.0), x.masked_fill(x > 0, 7.0))
        self.assertEqual(function.roll(x.npu(), (1, -2), (1, 2)), x.roll((1, -2), (1, 2)))
        with self.assertRaisesRegex(TypeError, "condition holds bools"):
            function.npu_fast_condition_index_put(x, x, 1)

    def test_boxes(self):
        corner = torch.rand(6, 2) * 50
        a = torch.cat([corner, corner + 10 + torch.rand(6, 2) * 20], 1)
        b = a + torch.rand(6, 4)
        deltas = function.npu_bbox_coder_encode_xyxy2xywh(a.npu(), b.npu(), means=[0.1] * 4, stds=[0.5] * 4)
        back = function.npu_bbox_coder_decode_xywh2xyxy(a.npu(), deltas, means=[0.1] * 4, stds=[0.5] * 4)
        self.assertEqual(back, b, prec=1e-2)

    def test_nms(self):
        boxes = torch.tensor([[0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30.0]]).npu()
        scores = torch.tensor([[0.9, 0.0, 0], [0.8, 0.0, 0], [0.1, 0.7, 0]]).npu()
        found, classes = function.npu_multiclass_nms(boxes, scores, score_thr=0.3, nms_thr=0.5, max_num=4)
        self.assertEqual(tuple(found.shape), (4, 5))
        self.assertEqual(found[:2].cpu(), torch.tensor([[0, 0, 10, 10, 0.9], [20, 20, 30, 30, 0.7]]), prec=1e-2)
        self.assertEqual(classes[:2].cpu().long(), torch.tensor([0, 1]))
        halved, _ = function.npu_multiclass_nms(boxes, scores, 0.3, 0.5, 4, torch.full((3,), 0.5).npu())
        self.assertEqual(halved[0, 4].item(), 0.45, prec=1e-2)


class TestModules(TestCase):
    def test_activations_and_loss(self):
        x = torch.randn(3, 4)
        from torch_npu.contrib.module.activations import Mish, SiLU, Swish

        self.assertEqual(Mish()(x.npu()), F.mish(x), prec=1e-5)
        for kind in (SiLU, Swish):
            self.assertEqual(kind()(x.npu()), F.silu(x), prec=1e-5)
        target = torch.tensor([1, 0, 3])
        found = module.LabelSmoothingCrossEntropy(4, 0.1)(x.npu(), target.npu())
        soft = torch.full((3, 4), 0.1 / 3).scatter(1, target[:, None], 0.9)
        self.assertEqual(found, -(soft * x.log_softmax(1)).sum(1).mean(), prec=1e-5)

    def test_bilstm(self):
        torch.manual_seed(0)
        layer = module.BiLSTM(3, 4)
        both = torch.nn.LSTM(3, 4, bidirectional=True)
        for name, own in both.named_parameters():
            half = layer.bw_rnn if name.endswith("_reverse") else layer.fw_rnn
            own.data = getattr(half, name.removesuffix("_reverse")).data.clone()
        x = torch.randn(5, 2, 3)
        self.assertEqual(layer.npu()(x.npu()), both(x)[0], prec=1e-5)

    def test_channel_shuffle(self):
        a, b = torch.randn(2, 4, 3, 3), torch.randn(2, 4, 3, 3)
        expected = F.channel_shuffle(torch.cat([a, b], 1), 2)
        self.assertEqual(module.ChannelShuffle(8, split_shuffle=False)(a.npu(), b.npu()), expected)
        halves = module.ChannelShuffle(8)(a.npu(), b.npu())
        self.assertEqual(torch.cat(halves, 1), expected)

    def test_focus(self):
        torch.manual_seed(0)
        layer, x = module.Focus(2, 3).eval(), torch.randn(1, 2, 6, 4)
        parts = [x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]]
        expected = F.silu(layer.conv.bn(layer.conv.conv(torch.cat(parts, 1))))
        self.assertEqual(layer.npu()(x.npu()), expected, prec=1e-5)

    def test_dropouts(self):
        x = torch.ones(1000, 4).npu()
        for layer in (module.NpuFairseqDropout(0.5), module.NpuCachedDropout(0.5), module.DropoutWithByteMask(0.5)):
            y = layer(x)
            self.assertEqual(sorted(y.unique().tolist()), [0.0, 2.0])
            self.assertIs(type(layer.eval()(x)), torch.Tensor)
            self.assertEqual(layer(x), x)
        paths = module.NpuDropPath(0.25)(x)
        self.assertEqual(paths.amin(1), paths.amax(1))
        self.assertEqual((paths[:, 0] > 0).float().mean().item(), 0.75, prec=0.06)
        self.assertEqual(paths.max().item(), 1 / 0.75, prec=1e-5)

    def test_deformable_convolution(self):
        torch.manual_seed(0)
        layer = module.ModulatedDeformConv(3, 4, 3, padding=1).npu()
        x = torch.randn(2, 3, 6, 6).npu()
        # Displacements begin at zero, masks at a half.
        expected = F.conv2d(x.cpu(), layer.weight.detach().cpu() * 0.5, layer.bias.detach().cpu(), padding=1)
        self.assertEqual(layer(x), expected, prec=1e-4)
        # A whole pixel down (y) and left (x): pairs are y, then x.
        plain = module.ModulatedDeformConv(3, 4, 3, padding=1, pack=False).npu()
        offset = torch.tensor([1.0, -1.0]).repeat(9).view(1, 18, 1, 1).expand(2, 18, 6, 6).contiguous().npu()
        moved = plain((x, offset, torch.ones(2, 9, 6, 6).npu()))
        shifted = F.pad(x.cpu(), (1, 0, 0, 1))[:, :, 1:, :6]
        inner = F.conv2d(shifted, plain.weight.detach().cpu(), plain.bias.detach().cpu(), padding=1)
        self.assertEqual(moved[:, :, 1:-2, 2:-1], inner[:, :, 1:-2, 2:-1], prec=1e-4)
        parameters = [plain.weight, plain.bias]
        first = torch.autograd.grad(plain((x, offset, torch.ones(2, 9, 6, 6).npu())).square().sum(), parameters)
        second = torch.autograd.grad(plain((x, offset, torch.ones(2, 9, 6, 6).npu())).square().sum(), parameters)
        self.assertEqual(list(first), list(second))
        self.assertGreater(first[0].abs().sum().item(), 0)

    def test_multihead_attention(self):
        torch.manual_seed(0)
        batch, length, width, heads = 2, 3, 8, 2
        layer = module.MultiheadAttention(width, heads, self_attention=True).eval()
        plain = torch.nn.MultiheadAttention(width, heads, batch_first=True).eval()
        plain.in_proj_weight.data = torch.cat([p.weight for p in (layer.q_proj, layer.k_proj, layer.v_proj)]).data
        plain.in_proj_bias.data = torch.cat([p.bias for p in (layer.q_proj, layer.k_proj, layer.v_proj)]).data
        plain.out_proj.load_state_dict(layer.out_proj.state_dict())
        x = torch.randn(batch, length, width)
        hidden = torch.tensor([[False, False, True], [False, False, False]])
        expected, _ = plain(x, x, x, key_padding_mask=hidden)
        layer.npu()
        rows = x.reshape(-1, width).npu()
        found, weights = layer(rows, None, None, batch, length, length, hidden.npu(), need_head_weights=True)
        self.assertEqual(found.view(batch, length, width), expected, prec=1e-5)
        self.assertEqual(tuple(weights.shape), (heads, batch, length, length))
        added = torch.zeros(batch, heads, length, length).masked_fill(hidden[:, None, None], -1e9)
        self.assertEqual(layer(rows, rows, rows, batch, length, length, added.npu())[0], found, prec=1e-5)
        self.assertEqual(layer.multi_attn(rows, rows, rows, hidden.npu(), batch, length), found)
        state = {"a.in_proj_weight": torch.arange(6.0).view(6, 1)}
        layer.upgrade_state_dict_named(state, "a")
        self.assertEqual(state["a.k_proj.weight"], torch.tensor([[2.0], [3.0]]))
        with self.assertRaises(NotImplementedError):
            module.MultiheadAttention(8, 2, add_bias_kv=True)

    def test_prefetcher(self):
        batches = [(torch.full((2,), i), torch.tensor(i)) for i in range(3)]
        fetched = module.Prefetcher(batches, stream=torch.npu.Stream())
        seen = []
        x, y = fetched.next()
        while x is not None:
            self.assertEqual((x.device.type, y.device.type), ("npu", "npu"))
            seen.append((x[0].item(), y.item()))
            x, y = fetched.next()
        self.assertEqual(seen, [(0, 0), (1, 1), (2, 2)])

    def test_quantised_layers(self):
        generator = torch.Generator().manual_seed(0)
        x = torch.randint(-9, 9, (3, 16), generator=generator, dtype=torch.int8)
        weight = torch.randint(-9, 9, (8, 16), generator=generator, dtype=torch.int8)
        layer = module.LinearQuant(16, 8, output_dtype=torch.float16).npu()
        layer.weight.data, layer.scale.data = weight.npu(), torch.full((8,), 0.5).npu()
        layer.bias.data = torch.arange(8, dtype=torch.int32).npu()
        expected = (x.double() @ weight.double().t() + torch.arange(8)) * 0.5
        self.assertEqual(layer(x.npu()), expected.half())
        weights = module.LinearWeightQuant(16, 8, dtype=torch.float16, antiquant_offset=True).npu()
        weights.weight.data = weight.npu()
        weights.antiquant_scale.data = torch.full((8, 1), 0.25).half().npu()
        weights.antiquant_offset.data = torch.full((8, 1), 2.0).half().npu()
        expected = x.double() @ ((weight.double() + 2) * 0.25).t()
        self.assertEqual(weights(x.half().npu()), expected.half(), prec=0.1)
        image = torch.randint(-9, 9, (1, 2, 5, 5), generator=generator, dtype=torch.int8)
        conv = module.QuantConv2d(2, 3, 3, torch.float16, padding=1, offset_x=2).npu()
        kernel = torch.randint(-9, 9, (3, 2, 3, 3), generator=generator, dtype=torch.int8)
        conv.weight.data, conv.scale.data = kernel.npu(), torch.tensor([0.5, 1, 2]).npu()
        expected = F.conv2d(F.pad(image.double(), (1,) * 4, value=2), kernel.double())
        self.assertEqual(conv(image.npu()), (expected * torch.tensor([0.5, 1, 2]).view(3, 1, 1)).half())


class TestNeighbours(TestCase):
    def test_erase_stream(self):
        stream = torch.npu.Stream()

        def taken_again(erase):
            torch.npu.synchronize()
            x = torch.empty(1 << 20, device="npu")
            address = x.data_ptr()
            with torch.npu.stream(stream):
                torch.npu._sleep(50_000_000)
                x.add_(1)
            x.record_stream(stream)
            torch.npu.current_stream().wait_stream(stream)
            if erase:
                torch_npu.erase_stream(x, stream)
            del x
            y = torch.empty(1 << 20, device="npu")
            return y.data_ptr() == address

        self.assertEqual([taken_again(True), taken_again(False)], [True, False])
        with self.assertRaisesRegex(RuntimeError, "No allocated block"):
            torch_npu.erase_stream(torch.ones(2), stream)

    def test_matmul_checksum(self):
        torch.manual_seed(0)
        a, b = (torch.randn(64, 64).bfloat16().npu() for _ in range(2))
        c = a @ b
        self.assertFalse(torch_npu.matmul_checksum(a, b, c).item())
        c[3, 5] += 64
        self.assertTrue(torch_npu.matmul_checksum(a, b, c).item())
        c[3, 5] = float("nan")
        self.assertTrue(torch_npu.matmul_checksum(a, b, c).item())
        with self.assertRaisesRegex(TypeError, "bfloat16"):
            torch_npu.matmul_checksum(a.float(), b, c)

    def test_jit(self):
        @torch.jit.script
        def model(x):
            return torch.nn.functional.gelu(x) + 1

        x = torch.randn(5).npu()
        torch_npu.jit.optimize(model)
        self.assertIn("npu_fast_gelu", str(model.graph))
        self.assertEqual(model(x), torch.npu_fast_gelu(x) + 1)
        with self.assertRaises(TypeError):
            torch_npu.jit.optimize(torch.nn.ReLU())

    def test_flops(self):
        counter = torch_npu.utils.FlopsCounter()
        self.assertIs(counter, torch_npu.utils.FlopsCounter())
        counter.start()
        try:
            a, b = torch.randn(3, 4).npu().requires_grad_(), torch.randn(4, 5).npu()
            y = a @ b
            self.assertEqual(counter.get_flops(), [120, 120])
            counter.pause()
            a @ b
            self.assertEqual(counter.get_flops(), [120, 240])
            counter.resume()
            y.sum().backward()
            self.assertEqual(counter.get_flops(), [240, 360])
        finally:
            counter.stop()
        self.assertEqual(counter.get_flops(), [0, 0])

    def test_save_async(self):
        layer = torch.nn.Linear(3, 2).npu()
        wanted = layer.weight.detach().cpu().clone()
        with tempfile.TemporaryDirectory() as folder:
            torch_npu.utils.save_async(layer.state_dict(), f"{folder}/layer.pt", model=layer)
            layer.weight.data.zero_()
            for thread in threading.enumerate():
                if thread.name == "torch.npu.utils.save_async":
                    thread.join()
            self.assertEqual(torch.load(f"{folder}/layer.pt")["weight"], wanted)

    def test_affinity(self):
        before = os.sched_getaffinity(0)
        torch_npu.utils.set_thread_affinity([0, 0])
        self.assertEqual(os.sched_getaffinity(0), before)  # only with CPU_AFFINITY_CONF
        os.environ["CPU_AFFINITY_CONF"] = "mode:1"
        self.addCleanup(os.environ.pop, "CPU_AFFINITY_CONF")
        core = min(before)
        try:
            torch_npu.utils.set_thread_affinity([[core, core]])
            self.assertEqual(os.sched_getaffinity(0), {core})
        finally:
            torch_npu.utils.reset_thread_affinity()
        self.assertEqual(os.sched_getaffinity(0), before)
        with self.assertRaisesRegex(ValueError, "a range is"):
            torch_npu.utils.set_thread_affinity([3, 1])

    def test_recorded_time(self):
        first, second = (torch.npu.Event(enable_timing=True) for _ in range(2))
        begin = time.monotonic_ns() // 1000
        first.record()
        torch.npu._sleep(20_000_000)
        second.record()
        times = [first.recorded_time(), second.recorded_time()]
        end = time.monotonic_ns() // 1000
        self.assertAlmostEqual(times[1] - times[0], 1000 * first.elapsed_time(second), delta=20)
        self.assertTrue(begin - 5000 <= times[0] < times[1] <= end + 5000, (begin, times, end))
        with self.assertRaisesRegex(RuntimeError, "InternalError"):
            torch.npu.Event(enable_timing=True).recorded_time()

    def test_static_scaler(self):
        scaler = torch_npu.npu.amp.GradScaler(init_scale=8.0, dynamic=False)
        weight = torch.ones(2).npu().requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for factor, moves in ((1.0, True), (float("inf"), False)):
            optimizer.zero_grad()
            before = weight.detach().clone()
            scaler.scale((weight * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(scaler.get_scale(), 8.0)
            self.assertEqual(not torch.equal(weight, before), moves)

    def test_deterministic(self):
        was = torch.are_deterministic_algorithms_enabled()
        self.addCleanup(torch.use_deterministic_algorithms, was)
        seen = []

        class Look(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                seen.append(torch.are_deterministic_algorithms_enabled())
                return x.view_as(x)

            @staticmethod
            def backward(ctx, grad):
                seen.append(torch.are_deterministic_algorithms_enabled())
                return grad

        torch.npu.set_deterministic_level(0)
        x = torch.ones(2).npu().requires_grad_()
        y = torch.npu.enable_deterministic_with_backward(Look.apply(x))
        y = torch.npu.disable_deterministic_with_backward(Look.apply(y))
        Look.apply(y).sum().backward()
        self.assertEqual(seen, [False, True, False, False, True, False])
        with self.assertRaisesRegex(NotImplementedError, "levels 2 and 3"):
            torch.npu.set_deterministic_level(2)


class TestPluginTestCase(TestCase):
    """torch_npu.testing.testcase.TestCase finds what differs, and only that."""

    def setUp(self):
        super().setUp()
        self.case = PluginCase()

    def test_equal(self):
        x = torch.randn(3, 4)
        for a, b in (
            (x, x.npu()),
            ([x, 1], [x.npu(), 1.0]),
            ({"a": x}, {"a": x + 1e-7}),
            (np.ones(3), torch.ones(3).npu()),
            (float("nan"), float("nan")),
            (torch.tensor([float("inf")]), torch.tensor([float("inf")])),
            ("text", "text"),
        ):
            self.case.assertEqual(a, b)
        for a, b in (
            (x, x + 1e-3),
            (x, x[:2]),
            ({"a": 1}, {"b": 1}),
            (torch.tensor([float("inf")]), torch.tensor([-float("inf")])),
            (1.0, float("nan")),
            ([1], [1, 1]),
            ("a", "b"),
        ):
            self.case.assertNotEqual(a, b)
            with self.assertRaises(AssertionError):
                self.case.assertEqual(a, b)
        self.case.assertEqual(x, x + 1e-3, 1e-2)
        self.case.assertEqual(torch.tensor([float("inf")]), torch.tensor([-float("inf")]), allow_inf=True)
        with self.assertRaises(AssertionError):
            self.case.assertEqual(x, x.double(), exact_dtype=True)

    def test_relative(self):
        x = torch.full((2000,), 1000.0)
        y = x.clone()
        y[0] = 900  # one in two thousand may be wrong
        self.case.assertRtolEqual(x, y, prec=1e-3)
        with self.assertRaises(AssertionError):
            self.case.assertRtolEqual(x, x + 10, prec=1e-3)

    def test_seeds(self):
        self.case.setUp()
        first = torch.randn(2, device="npu")
        self.case.setUp()
        self.assertEqual(torch.randn(2, device="npu"), first)


if __name__ == "__main__":
    run_tests()
