"""Quantized tensors on npu against the CPU: making them, codes and numbers, copies, views, files, errors."""

import copy
import io
import itertools
import os
import unittest
import warnings

os.environ["NPU_FALLBACK"] = "0"

import several_devices  # noqa: F401
import torch.utils._pytree as pytree

import torch
import torch.npu

DEVICE = "npu:0"
QTYPES = (torch.quint8, torch.qint8, torch.qint32)
# Ties, both ends of every code, and what has no code.
SPECIAL = [
    float("nan"),
    float("inf"),
    -float("inf"),
    1e30,
    -1e30,
    3e9,
    -3e9,
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
    -2.5,
    -0.0,
    1e-40,
]
SPECIAL += [125.5, 126.5, 127.5, 128.0, -127.5, -128.5, -129.0, 254.5, 255.5, 256.0, 2147483520.0, -2147483648.0]


def moved(value):
    return pytree.tree_map(lambda t: t.to(DEVICE) if isinstance(t, torch.Tensor) else t, value)


def image(*sizes, seed=0):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)) * 4


def per_tensor(device="cpu", dtype=torch.quint8):
    return torch.quantize_per_tensor(image(2, 3, 4, 5).to(device), 0.1, 3, dtype)


def per_channel(device="cpu", dtype=torch.qint8):
    scales, points = torch.tensor([0.1, 0.25, 0.07], dtype=torch.float64), torch.tensor([0, -3, 5])
    return torch.quantize_per_channel(image(2, 3, 4, 5).to(device), scales.to(device), points.to(device), 1, dtype)


def float_points(device="cpu", dtype=torch.quint8):
    scales, points = torch.tensor([0.1, 0.25, 0.07]), torch.tensor([0.5, 3.3, 5.7])
    return torch.quantize_per_channel(image(2, 3, 4, 5).to(device), scales.to(device), points.to(device), 1, dtype)


class QuantizedCase(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")  # upstream's, of what it will remove

    def same(self, actual, expected, note=""):
        """Bit for bit: codes, quantizer, strides; plain tensors likewise, and lists of either."""
        for a, e in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
            if not isinstance(e, torch.Tensor):
                self.assertEqual(a, e, note)
                continue
            self.assertEqual(a.device.type, "npu", note)
            self.assertEqual((a.dtype, a.shape, a.is_quantized), (e.dtype, e.shape, e.is_quantized), note)
            self.assertEqual(a.stride(), e.stride(), note)
            if not e.is_quantized:
                torch.testing.assert_close(a.cpu(), e, rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{note}: {m}")
                continue
            self.assertEqual(a.qscheme(), e.qscheme(), note)
            self.assertTrue(torch.equal(a.int_repr().cpu(), e.int_repr()), note)
            if e.qscheme() == torch.per_tensor_affine:
                self.assertEqual((a.q_scale(), a.q_zero_point()), (e.q_scale(), e.q_zero_point()), note)
            else:
                self.same(a.q_per_channel_scales(), e.q_per_channel_scales(), note)
                self.same(a.q_per_channel_zero_points(), e.q_per_channel_zero_points(), note)
                self.assertEqual(a.q_per_channel_axis(), e.q_per_channel_axis(), note)

    def check(self, function, *args, note=""):
        self.same(function(*moved(args)), function(*args), note)

    def refused(self, function, *args, note=""):
        """npu raises the class that the CPU raises."""
        with self.assertRaises(Exception, msg=note) as expected:
            function(*args)
        with self.assertRaises(type(expected.exception), msg=note) as actual:
            function(*moved(args))
        self.assertIs(type(actual.exception), type(expected.exception), note)


class QuantizeTest(QuantizedCase):
    def test_per_tensor(self):
        for dtype, point, shape in itertools.product(QTYPES, (0, 3), ((), (7,), (33, 65), (2, 3, 4, 5), (0, 3))):
            for scale in (0.1, 0.0371, 1.0, 12.5):
                x = image(*shape)
                self.check(torch.quantize_per_tensor, x, scale, point, dtype, note=f"{dtype} {scale} {point} {shape}")

    def test_per_channel(self):
        for dtype, axis in itertools.product(QTYPES, range(3)):
            x = image(5, 6, 7)
            channels = x.shape[axis]
            scales = torch.rand(channels, dtype=torch.float64) + 0.01
            points = torch.arange(channels)
            self.check(torch.quantize_per_channel, x, scales, points, axis, dtype, note=f"{dtype} {axis}")
            self.check(torch.quantize_per_channel, x, scales.float(), points.int(), axis, dtype, note=f"{dtype} {axis}")
            if dtype != torch.qint32:
                self.check(torch.quantize_per_channel, x, scales.float(), points + 0.3, axis, dtype)

    def test_large(self):
        # By the stream's worker, on several threads.
        x = image(301, 401)
        self.check(torch.quantize_per_tensor, x, 0.05, 7, torch.quint8)
        self.check(torch.quantize_per_channel, x, torch.rand(301) + 0.01, torch.arange(301) % 9, 0, torch.qint8)
        self.check(lambda v: torch.quantize_per_tensor(v, 0.05, 7, torch.qint8).dequantize(), x)

    def test_one_channel(self):
        self.check(torch.quantize_per_channel, image(1, 5), torch.tensor([0.1]), torch.tensor([3]), 0, torch.qint8)

    def test_what_has_no_code(self):
        x = torch.tensor(SPECIAL)
        ones = torch.ones(len(SPECIAL))
        for dtype, point in itertools.product(QTYPES, (0, 3)):
            points = torch.full((len(SPECIAL),), point)
            self.check(torch.quantize_per_tensor, x, 1.0, point, dtype, note=f"{dtype} {point}")
            self.check(torch.quantize_per_channel, x, ones, points, 0, dtype, note=f"{dtype} {point}")
            if dtype != torch.qint32:
                self.check(torch.quantize_per_channel, x, ones, points.float(), 0, dtype, note=f"{dtype} {point}")
        for scale in (0.0, -0.1, float("inf"), 1e-42):
            self.check(torch.quantize_per_tensor, x, scale, 1, torch.quint8, note=f"scale {scale}")

    def test_ties_go_to_even(self):
        x = torch.tensor([0.5, 1.5, 2.5, 3.5, -0.5, -1.5]).to(DEVICE)
        codes = torch.quantize_per_tensor(x, 1.0, 0, torch.qint8).int_repr()
        self.assertEqual(codes.tolist(), [0, 2, 2, 4, 0, -2])

    def test_scale_and_zero_point_as_tensors(self):
        x, scale, point = image(3, 4), torch.tensor(0.1), torch.tensor(3)
        expected = torch.quantize_per_tensor(x, scale, point, torch.quint8)
        for s, z in itertools.product((scale, scale.to(DEVICE)), (point, point.to(DEVICE))):
            self.same(torch.quantize_per_tensor(x.to(DEVICE), s, z, torch.quint8), expected)
        self.check(torch.quantize_per_tensor, x, scale.reshape(1), point.reshape(1), torch.quint8)
        with self.assertRaisesRegex(RuntimeError, "same device"):
            torch.quantize_per_channel(x.to(DEVICE), torch.rand(4), torch.arange(4), 1, torch.qint8)

    def test_lists(self):
        xs, scales, points = [image(3), image(2, 2)], torch.tensor([0.1, 0.2]), torch.tensor([1, 2])
        self.check(torch.quantize_per_tensor, xs, scales, points, torch.quint8)
        quantized = torch.quantize_per_tensor(xs, scales, points, torch.quint8)
        self.check(torch.dequantize, list(quantized))

    def test_dynamic(self):
        for dtype, reduce_range in itertools.product((torch.quint8, torch.qint8), (False, True)):
            self.check(torch.quantize_per_tensor_dynamic, image(4, 9), dtype, reduce_range)

    def test_strides(self):
        x = image(2, 3, 4, 5)
        scales, points = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 2, 3])
        for view in (
            x.to(memory_format=torch.channels_last),
            x.transpose(0, 2),
            x[:, :, ::2],
            x[1:].expand(2, 3, 4, 5),
        ):
            self.check(torch.quantize_per_tensor, view, 0.1, 3, torch.quint8)
            if view.shape[1] == 3:
                self.check(torch.quantize_per_channel, view, scales, points, 1, torch.qint8)
            self.check(lambda v: torch.quantize_per_tensor(v, 0.1, 3, torch.quint8).dequantize(), view)

    def test_out_forms(self):
        x = image(3, 4)
        for device in ("cpu", DEVICE):
            out = torch._empty_affine_quantized([0], scale=1.0, zero_point=0, dtype=torch.quint8, device=device)
            torch.ops.aten.quantize_per_tensor.out(x.to(device), 0.1, 3, torch.quint8, out=out)
            self.assertTrue(torch.equal(out.cpu(), torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)))

    def test_no_gradient(self):
        x = image(3, 4).to(DEVICE).requires_grad_()
        quantized = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
        self.assertFalse(quantized.requires_grad)
        self.assertFalse(quantized.dequantize().requires_grad)
        self.refused(lambda q: q.clone().requires_grad_(), per_tensor())

    def test_errors(self):
        x, four, points = image(3, 4), torch.rand(4) + 0.1, torch.arange(4)
        tensor, channel = torch.quantize_per_tensor, torch.quantize_per_channel
        for dtype in (torch.float16, torch.float64, torch.bfloat16, torch.int32):
            self.refused(tensor, x.to(dtype), 0.1, 3, torch.quint8, note=str(dtype))
            self.refused(channel, x.to(dtype), four, points, 1, torch.qint8, note=str(dtype))
        for dtype in (torch.float32, torch.int8):
            self.refused(tensor, x, 0.1, 3, dtype, note=str(dtype))
            self.refused(channel, x, four, points, 1, dtype, note=str(dtype))
        for point in (256, -1):
            self.refused(tensor, x, 0.1, point, torch.quint8)
        self.refused(tensor, x, torch.tensor([0.1, 0.2]), torch.tensor(3), torch.quint8)
        for axis in (2, -1, 5):
            self.refused(channel, x, four, points, axis, torch.qint8)
        self.refused(channel, x, four[:3], points[:3], 1, torch.qint8)
        self.refused(channel, x, four, points[:3], 1, torch.qint8)
        self.refused(channel, x, torch.ones(4, dtype=torch.int), points, 1, torch.qint8)
        self.refused(channel, x, four, points + 126, 1, torch.qint8)
        self.refused(channel, x, four, points - 1, 1, torch.quint8)
        self.refused(torch.quantize_per_tensor_dynamic, x, torch.qint32, False)
        self.refused(torch.quantize_per_tensor_dynamic, x.half(), torch.quint8, False)

    def test_codes_below_a_byte_are_refused(self):
        x = image(3, 4)
        for dtype in (torch.quint4x2, torch.quint2x4):
            with self.assertRaisesRegex(NotImplementedError, "quantize on the CPU"):
                torch.quantize_per_tensor(x.to(DEVICE), 0.1, 3, dtype)
            with self.assertRaisesRegex(NotImplementedError, "quantize on the CPU"):
                torch.quantize_per_tensor(x, 0.1, 3, dtype).to(DEVICE)


class NumbersTest(QuantizedCase):
    def test_dequantize(self):
        for make in (per_tensor, per_channel, float_points):
            self.same(make(DEVICE), make())
            self.same(make(DEVICE).dequantize(), make().dequantize())
            self.same(torch.dequantize([make(DEVICE)] * 2), torch.dequantize([make()] * 2))
        self.check(torch.dequantize, image(3).double())

    def test_dequantize_all_codes(self):
        for dtype, low, high in ((torch.uint8, 0, 256), (torch.int8, -128, 128), (torch.int32, -(2**31), 2**31 - 200)):
            codes = torch.randint(low, high, (7, 101), generator=torch.Generator().manual_seed(0)).to(dtype)
            for point in (0, 77):
                self.same(
                    torch._make_per_tensor_quantized_tensor(codes.to(DEVICE), 0.0371, point).dequantize(),
                    torch._make_per_tensor_quantized_tensor(codes, 0.0371, point).dequantize(),
                )
            for axis in (0, 1):
                parts = codes, torch.rand(codes.shape[axis]) + 0.01, torch.arange(codes.shape[axis])
                make = torch._make_per_channel_quantized_tensor
                self.same(make(*moved(parts), axis).dequantize(), make(*parts, axis).dequantize())

    def test_made_from_codes(self):
        codes = torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4)
        for view in (codes, codes.transpose(0, 1)):
            self.check(torch._make_per_tensor_quantized_tensor, view, 0.5, 2)
        self.check(torch._make_per_channel_quantized_tensor, codes, torch.rand(3), torch.arange(3), 1)
        there = codes.to(DEVICE)
        quantized = torch._make_per_tensor_quantized_tensor(there, 0.5, 2)
        there.zero_()
        self.assertTrue(torch.equal(quantized.int_repr().cpu(), codes))
        self.refused(torch._make_per_tensor_quantized_tensor, codes.long(), 0.5, 2)

    def test_empty(self):
        def make(device):
            scales, points = torch.tensor([0.1, 0.2]).to(device), torch.tensor([1, 2]).to(device)
            one = torch._empty_affine_quantized([2, 3], scale=0.5, zero_point=2, dtype=torch.qint8, device=device)
            each = torch._empty_per_channel_affine_quantized(
                [2, 3], scales=scales, zero_points=points, axis=0, dtype=torch.quint8, device=device
            )
            unknown = torch.empty(2, dtype=torch.quint8, device=device)
            made = [one, each, torch.empty_like(one), torch.empty_like(each), one.resize_(2, 2)]
            return [t.fill_(1.0) for t in made] + [unknown.dtype, unknown.shape]

        self.same(make(DEVICE), make("cpu"))
        for device in ("cpu", DEVICE):
            with self.assertRaisesRegex(RuntimeError, "requires quantized dtype"):
                torch._empty_affine_quantized([2], scale=0.5, zero_point=2, dtype=torch.float32, device=device)

    def test_item(self):
        for make in (per_tensor, per_channel):
            self.assertEqual(make(DEVICE)[1, 2, 0, 0].item(), make()[1, 2, 0, 0].item())

    def test_questions_of_the_other_scheme(self):
        self.refused(lambda q: q.q_per_channel_axis(), per_tensor())
        self.refused(lambda q: q.q_per_channel_scales(), per_tensor())
        self.refused(lambda q: q.q_scale(), per_channel())
        self.refused(lambda q: q.q_zero_point(), per_channel())

    def test_second_device(self):
        if torch.npu.device_count() < 2:
            self.skipTest("one device")
        for make in (per_tensor, per_channel):
            other = make("npu:1")
            self.assertEqual(other.device, torch.device("npu:1"))
            self.assertEqual(other.int_repr().device, torch.device("npu:1"))
            self.same(other.to(DEVICE), make())
            self.same(other.dequantize(), make().dequantize())
            with self.assertRaisesRegex(RuntimeError, "same device"):
                torch.equal(other, make(DEVICE))


class CopyTest(QuantizedCase):
    def test_to_and_back(self):
        for make, dtype in itertools.product((per_tensor, per_channel), QTYPES):
            here = make(dtype=torch.qint8 if make is per_channel and dtype == torch.quint8 else dtype)
            there = here.to(DEVICE)
            self.same(there, here)
            self.assertTrue(torch.equal(there.cpu(), here))
            self.assertEqual(there.cpu().device.type, "cpu")
            self.same(there.clone(), here)
            self.assertTrue(there.to(DEVICE) is there)
        here = float_points()
        self.same(here.npu(), here)
        back = here.to(DEVICE).cpu()
        self.assertTrue(torch.equal(back, here))
        self.assertEqual(back.q_per_channel_scales().device.type, "cpu")

    def test_layouts(self):
        x = image(2, 3, 4, 5)
        last = torch.quantize_per_tensor(x.to(memory_format=torch.channels_last), 0.1, 3, torch.quint8)
        for view in (last, last.permute(1, 0, 2, 3), last[:, :, ::2], per_tensor().transpose(0, 1), per_tensor()[:, 1]):
            expected = view.to("cpu", copy=True)
            self.same(view.to(DEVICE), expected)
            self.same(view.to(DEVICE).to(DEVICE, copy=True), expected.to("cpu", copy=True))
            self.assertTrue(torch.equal(view.to(DEVICE).cpu(), view))
        self.check(lambda q: q.to(memory_format=torch.channels_last), per_tensor())
        self.check(lambda q: q.contiguous(memory_format=torch.channels_last), per_tensor())

    def test_copy(self):
        for make in (per_tensor, per_channel):
            other = (
                make()
                if make is per_channel
                else torch.quantize_per_tensor(image(2, 3, 4, 5, seed=1), 0.3, 9, torch.quint8)
            )
            expected = make().copy_(other)
            self.same(make(DEVICE).copy_(other), expected)
            self.same(make(DEVICE).copy_(other.to(DEVICE)), expected)
            self.assertTrue(torch.equal(make().copy_(other.to(DEVICE)), expected))
            self.check(lambda q, o: q.clone().copy_(o), make(), make()[:1])
            floats = image(2, 3, 4, 5, seed=2)
            expected = make().copy_(floats)
            self.same(make(DEVICE).copy_(floats), expected)
            self.same(make(DEVICE).copy_(floats.to(DEVICE)), expected)
            self.assertTrue(torch.equal(make().copy_(floats.to(DEVICE)), expected))
            self.check(lambda q: q.clone().fill_(0.5), make())
            self.check(torch.ones_like, make())

    def test_copied_quantizer_is_on_the_target(self):
        there = per_channel(DEVICE)
        there.copy_(per_channel())
        self.assertEqual(there.q_per_channel_scales().device.type, "npu")
        here = per_channel().copy_(there)
        self.assertEqual(here.q_per_channel_zero_points().device.type, "cpu")

    def test_assignment(self):
        def assign(q, x):
            q = q.clone()
            q[0] = x[1]
            q[1, 0, 0, 0] = 1.0
            return q

        self.check(assign, per_tensor(), image(2, 3, 4, 5, seed=3))
        # Into a view with gaps, which the CPU refuses.
        q, x = per_tensor(DEVICE), image(2, 3, 4, 5, seed=3).to(DEVICE)
        q[:, 1] = x[:, 1]
        expected = torch.quantize_per_tensor(x[:, 1], 0.1, 3, torch.quint8)
        self.assertTrue(torch.equal(q[:, 1].int_repr(), expected.int_repr()))

    def test_errors(self):
        q, c, x = per_tensor(), per_channel(), image(2, 3, 4, 5)
        self.refused(lambda a, b: b.clone().copy_(a), q, x)
        self.refused(lambda a, b: a.clone().copy_(b), q, c)
        self.refused(lambda a, b: a.clone().copy_(b), q, per_tensor(dtype=torch.qint8))
        self.refused(lambda a, b: a.clone().copy_(b), q, x.half())
        self.refused(lambda a, b: a.clone().copy_(b), q, x[:1])
        for dtype in (torch.float32, torch.float16, torch.uint8, torch.qint32):
            self.refused(lambda a, d=dtype: a.to(d), q, note=str(dtype))
        self.refused(lambda a: a.to(torch.quint8), x)
        with self.assertRaisesRegex(RuntimeError, "dequantize"):
            x.clone().copy_(q.to(DEVICE))


class ViewTest(QuantizedCase):
    VIEWS = {
        "view": lambda q: q.view(6, 20),
        "reshape": lambda q: q.reshape(-1),
        "flatten": lambda q: q.flatten(2),
        "transpose": lambda q: q.transpose(1, 3),
        "permute": lambda q: q.permute(3, 1, 0, 2),
        "permute reshape": lambda q: q.permute(3, 1, 0, 2).reshape(5, -1),
        "select": lambda q: q.select(0, 1),
        "select channel": lambda q: q.select(1, 1),
        "slice": lambda q: q[1:, :, 1:3],
        "slice channels": lambda q: q[:, 1:],
        "step": lambda q: q[..., ::2],
        "narrow": lambda q: q.narrow(3, 1, 2),
        "unsqueeze": lambda q: q.unsqueeze(0),
        "squeeze": lambda q: q[:1].squeeze(0),
        "squeeze all": lambda q: q[:1].squeeze(),
        "unfold": lambda q: q.unfold(3, 2, 1),
        "expand": lambda q: q[:1].expand(4, 3, 4, 5),
        "as_strided": lambda q: q.as_strided((3, 4), (7, 2), 5),
        "split": lambda q: q.split(2, 2),
        "chunk": lambda q: q.chunk(2, 1),
        "unbind": lambda q: q.unbind(1),
        "detach": lambda q: q.detach(),
        "flip": lambda q: q.flip(0, 3),
        "contiguous": lambda q: q.transpose(0, 1).contiguous(),
        "clone": lambda q: q.transpose(0, 1).clone(),
        "index": lambda q: q[torch.tensor([1, 0, 1], device=q.device)],
        "index_select": lambda q: q.index_select(2, torch.tensor([3, 0], device=q.device)),
    }

    def test_views(self):
        for make, (name, function) in itertools.product((per_tensor, per_channel), self.VIEWS.items()):
            note = f"{name} of {make.__name__}"
            here, there = make(), make(DEVICE)
            try:
                expected = function(here)
            except RuntimeError:
                with self.assertRaises(RuntimeError, msg=note):
                    function(there)
                continue
            if make is per_channel and name in ("view", "reshape", "permute reshape"):
                self.assertTrue(torch.equal(function(there).int_repr().cpu(), expected.int_repr()), note)
                continue
            self.same(function(there), expected, note)
            if not (make is per_channel and name == "flatten"):
                values = [t.dequantize() for t in pytree.tree_leaves(function(there))]
                self.same(values, [t.dequantize() for t in pytree.tree_leaves(expected)], note)

    def test_views_share_memory(self):
        q = per_tensor(DEVICE)
        row = q.transpose(0, 1)[2]
        row.fill_(1.0)
        self.assertTrue((q[:, 2].int_repr() == 13).all().item())
        self.assertEqual(row.untyped_storage().data_ptr(), q.untyped_storage().data_ptr())

    def test_storage(self):
        q = per_tensor(DEVICE)
        other = torch._empty_affine_quantized([0], scale=0.1, zero_point=3, dtype=torch.quint8, device=DEVICE)
        other.set_(q.untyped_storage(), 60, (3, 20), (20, 1))
        self.assertTrue(torch.equal(other, q[1].view(3, 20)))
        with self.assertRaisesRegex(RuntimeError, "different device"):
            other.set_(per_tensor().untyped_storage(), 0, (3,), (1,))
        q.record_stream(torch.npu.current_stream())

    def test_equal(self):
        q, c = per_tensor(DEVICE), per_channel(DEVICE)
        self.assertTrue(torch.equal(q, q.clone()))
        self.assertTrue(torch.equal(c, c.clone()))
        self.assertTrue(torch.equal(q.transpose(0, 1), q.transpose(0, 1).contiguous()))
        self.assertFalse(torch.equal(q, c))
        self.assertFalse(torch.equal(q, q[:1]))
        self.assertFalse(torch.equal(q, q.flip(0)))
        self.assertFalse(torch.equal(q, torch._make_per_tensor_quantized_tensor(q.int_repr(), 0.1, 4)))
        self.assertFalse(torch.equal(q, q.dequantize()))
        self.assertFalse(torch.equal(q.dequantize(), q))

    def test_comparisons(self):
        names = ("eq", "ne", "lt", "le", "gt", "ge")
        for make, name in itertools.product((per_tensor, per_channel), names):
            function = getattr(torch, name)
            self.check(function, make(), make().clone(), note=name)
            self.check(function, make(), 0.5, note=name)
            self.check(function, make(), image(2, 3, 4, 5, seed=1), note=name)

    def test_print(self):
        for make in (per_tensor, per_channel):
            text = str(make(DEVICE)).replace(", device='npu:0'", "").replace("device='npu:0', ", "")
            self.assertEqual("".join(text.split()), "".join(str(make()).split()))


class FileTest(QuantizedCase):
    def test_save_and_load(self):
        for make in (per_tensor, per_channel):
            for q in (make(DEVICE), make(DEVICE)[:, 1:]):
                file = io.BytesIO()
                torch.save(q, file)
                for place in (None, DEVICE, "cpu"):
                    file.seek(0)
                    loaded = torch.load(file, map_location=place)
                    self.assertEqual(loaded.device.type, "cpu" if place == "cpu" else "npu")
                    self.assertTrue(torch.equal(loaded.cpu(), q.cpu()))
            file = io.BytesIO()
            torch.save(make(), file)
            file.seek(0)
            self.same(torch.load(file, map_location=DEVICE), make())

    def test_deepcopy(self):
        for make in (per_tensor, per_channel):
            self.same(copy.deepcopy(make(DEVICE)), make())

    def test_module_buffers(self):
        module = torch.nn.Module()
        module.register_buffer("weight", per_channel())
        self.same(module.to(DEVICE).weight, per_channel())
        self.assertTrue(torch.equal(module.cpu().weight, per_channel()))


class RefusedTest(QuantizedCase):
    """Operators without a kernel for codes: an error that names them, never a number."""

    OPERATORS = {
        "aten::add": lambda q: q + q,
        "aten::mm": lambda q: q.view(6, 20) @ q.view(20, 6),
        "aten::sum": lambda q: q.sum(),
        "aten::relu": lambda q: q.relu(),
        "aten::cat": lambda q: torch.cat([q, q]),
        "aten::where": lambda q: torch.where(q.dequantize() > 0, q, q),
        "aten::zero_": lambda q: q.clone().zero_(),
        "aten::uniform_": lambda q: torch.rand_like(q),
        "aten::max": lambda q: q.max(),
        "aten::sort": lambda q: q.sort(),
        "aten::mean": lambda q: q.mean(),
        "aten::convolution": lambda q: torch.conv2d(q, q),
        "aten::view.dtype": lambda q: q.view(torch.uint8),
        "aten::isnan": lambda q: q.isnan(),
        "aten::nonzero": lambda q: q.nonzero(),
        "aten::index_add": lambda q: q.index_add(0, torch.tensor([0], device=q.device), q[:1]),
        "aten::masked_fill_": lambda q: q.masked_fill(q.dequantize() > 0, 0.1),
        "quantized::add": lambda q: torch.ops.quantized.add(q, q, 0.1, 3),
        "quantized::mul": lambda q: torch.ops.quantized.mul(q, q, 0.1, 3),
    }

    def test_named(self):
        for make, (name, function) in itertools.product((per_tensor, per_channel), self.OPERATORS.items()):
            if make is per_channel and name == "aten::where":
                continue
            with self.assertRaises(NotImplementedError, msg=name) as caught:
                function(make(DEVICE))
            self.assertIn(name, str(caught.exception))
            self.assertIn("dequantize()", str(caught.exception))

    def test_composites_of_host_memory(self):
        x = image(8, 8).to(DEVICE)
        for function in (
            lambda: torch.choose_qparams_optimized(x, 64, 200, 0.16, 8),
            lambda: torch.fbgemm_linear_quantize_weight(x),
            lambda: torch.fbgemm_pack_gemm_matrix_fp16(x),
            lambda: torch.fbgemm_pack_quantized_matrix(x.to(torch.int8)),
        ):
            with self.assertRaisesRegex(NotImplementedError, r"Call cpu\(\)"):
                function()
        self.check(torch._choose_qparams_per_tensor, image(8, 8))

    def test_methods_never_differ_from_the_cpu(self):
        """Every method that needs no argument: the CPU's result or an error."""
        skipped = {
            "storage",
            "untyped_storage",
            "data_ptr",
            "cuda",
            "xpu",
            "ipu",
            "mtia",
            "npu",
            "cpu",
            "share_memory_",
        }
        skipped |= {
            "pin_memory",
            "is_pinned",
            "get_device",
            "numpy",
            "device",
            "is_shared",
            "to_mkldnn",
            "storage_type",
        }
        for make in (per_tensor, per_channel):
            for name in sorted(n for n in dir(torch.Tensor) if not n.startswith("_")):
                if name in skipped or not callable(getattr(torch.Tensor, name)):
                    continue
                results = []
                for device in ("cpu", DEVICE):
                    try:
                        results.append(getattr(make(device), name)())
                    except Exception as error:
                        results.append(error)
                expected, actual = results
                if isinstance(actual, Exception):
                    continue
                note = f"{name} of {make.__name__}"
                self.assertNotIsInstance(expected, Exception, note)
                if isinstance(expected, (torch.Tensor, tuple)):
                    self.same(actual, expected, note)


if __name__ == "__main__":
    unittest.main()
