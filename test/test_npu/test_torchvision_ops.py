"""torchvision's operators on npu and the CPU: values and gradients against references written out here in float64."""

import importlib.util
import itertools
import math
import os
import unittest

os.environ["NPU_FALLBACK"] = "0"  # read when torch.npu loads

import torch.nn.functional as F

import torch

FOUND = importlib.util.find_spec("torchvision") is not None
DEVICES = ("npu", "cpu")
DTYPES = ((torch.float64, 1e-10), (torch.float32, 2e-5), (torch.float16, 2e-2))


def sampled(planes, y, x):
    """Value of [C, H, W] at one point; a point up to a pixel outside counts as on the border, others as 0."""
    height, width = planes.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(planes.shape[0], dtype=planes.dtype)
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper = planes[:, top, left] * (1 - (x - left)) + planes[:, top, right] * (x - left)
    lower = planes[:, bottom, left] * (1 - (x - left)) + planes[:, bottom, right] * (x - left)
    return upper * (1 - (y - top)) + lower * (y - top)


def aligned_cells(x, roi, scale, size, ratio, offset, at_least_one):
    """[C, rows, columns] of one region: the mean of a grid of points in each cell."""
    x0, y0, x1, y1 = (float(v) * scale - offset for v in roi[1:])
    height, width = y1 - y0, x1 - x0
    if at_least_one:
        height, width = max(height, 1.0), max(width, 1.0)
    cell_h, cell_w = height / size[0], width / size[1]
    grid_h, grid_w = (ratio, ratio) if ratio > 0 else (math.ceil(cell_h), math.ceil(cell_w))
    planes = x[int(roi[0])]
    rows = []
    for i in range(size[0]):
        for j in range(size[1]):
            points = [
                sampled(planes, y0 + (i + (a + 0.5) / grid_h) * cell_h, x0 + (j + (b + 0.5) / grid_w) * cell_w)
                for a in range(grid_h)
                for b in range(grid_w)
            ]
            rows.append(sum(points) / len(points))
    return torch.stack(rows, 1).view(-1, *size)


def pixel_cells(roi, scale, size, inclusive, bounds):
    """The windows (top, bottom, left, right) of one region with corners at whole pixels, row by row."""
    away = [math.floor(abs(float(v) * scale) + 0.5) * (1 if v >= 0 else -1) for v in roi[1:]]
    x0, y0, x1, y1 = away
    cell_w = max(x1 - x0 + inclusive, 1) / size[1]
    cell_h = max(y1 - y0 + inclusive, 1) / size[0]

    def cut(value, last):
        return min(max(int(value), 0), last)

    return [
        (
            cut(math.floor(i * cell_h) + y0, bounds[0]),
            cut(math.ceil((i + 1) * cell_h) + y0, bounds[0]),
            cut(math.floor(j * cell_w) + x0, bounds[1]),
            cut(math.ceil((j + 1) * cell_w) + x0, bounds[1]),
        )
        for i in range(size[0])
        for j in range(size[1])
    ]


def sensitive(cells):
    """Of [C * cells, rows, columns], cell i of channel c out of input channel c * cells + i."""
    channels, rows, columns = cells.shape
    flat = cells.reshape(channels // (rows * columns), rows * columns, rows * columns)
    return flat.diagonal(dim1=1, dim2=2).reshape(-1, rows, columns)


def roi_align(x, rois, size, scale, ratio, aligned):
    offset = 0.5 if aligned else 0.0
    return torch.stack([aligned_cells(x, roi, scale, size, ratio, offset, not aligned) for roi in rois])


def ps_roi_align(x, rois, size, scale, ratio):
    return torch.stack([sensitive(aligned_cells(x, roi, scale, size, ratio, 0.5, False)) for roi in rois])


def roi_pool(x, rois, size, scale):
    def largest(planes, window):
        top, bottom, left, right = window
        if bottom <= top or right <= left:
            return torch.zeros(planes.shape[0], dtype=planes.dtype)
        return planes[:, top:bottom, left:right].flatten(1).max(1)[0]

    regions = [
        torch.stack([largest(x[int(r[0])], w) for w in pixel_cells(r, scale, size, 1, x.shape[2:])], 1) for r in rois
    ]
    return torch.stack(regions).view(len(rois), -1, *size)


def ps_roi_pool(x, rois, size, scale):
    """torchvision's: the last row and column never count."""

    def mean(planes, window):
        top, bottom, left, right = window
        if bottom <= top or right <= left:
            return torch.zeros(planes.shape[0], dtype=planes.dtype)
        return planes[:, top:bottom, left:right].mean((1, 2))

    bounds = (x.shape[2] - 1, x.shape[3] - 1)
    regions = [
        sensitive(
            torch.stack([mean(x[int(r[0])], w) for w in pixel_cells(r, scale, size, 0, bounds)], 1).view(-1, *size)
        )
        for r in rois
    ]
    return torch.stack(regions)


def deform_conv2d(x, offset, weight, bias, stride, padding, dilation, mask):
    """Each tap as a picture sampled by grid_sample, then one contraction."""
    count, channels, height, width = x.shape
    out, per_group, kernel_h, kernel_w = weight.shape
    rows, columns = offset.shape[2:]
    taps = kernel_h * kernel_w
    groups = offset.shape[1] // (2 * taps)
    offset = offset.view(count, groups, taps, 2, rows, columns)
    pictures = []
    for g in range(groups):
        part = x[:, g * channels // groups : (g + 1) * channels // groups]
        for k in range(taps):
            y = torch.arange(rows, dtype=x.dtype)[:, None] * stride[0] - padding[0] + k // kernel_w * dilation[0]
            z = torch.arange(columns, dtype=x.dtype)[None, :] * stride[1] - padding[1] + k % kernel_w * dilation[1]
            y, z = y + offset[:, g, k, 0], z + offset[:, g, k, 1]
            grid = torch.stack([2 * z / (width - 1) - 1, 2 * y / (height - 1) - 1], -1)
            picture = F.grid_sample(part, grid, align_corners=True)
            if mask is not None:
                picture = picture * mask.view(count, groups, 1, taps, rows, columns)[:, g, :, k]
            pictures.append(picture)
    columns_ = torch.stack(pictures, 1).view(count, groups, taps, channels // groups, rows, columns)
    columns_ = columns_.permute(0, 1, 3, 2, 4, 5).reshape(count, channels // per_group, per_group * taps, rows, columns)
    filters = weight.view(channels // per_group, out // (channels // per_group), per_group * taps)
    result = torch.einsum("ngkij,gok->ngoij", columns_, filters).reshape(count, out, rows, columns)
    return result if bias is None else result + bias.view(1, -1, 1, 1)


def regions(count, size, images=2):
    """Regions [image, x0, y0, x1, y1], some beyond the picture; no corner lies near a rounding edge."""
    corner = torch.rand(count, 2, dtype=torch.float64) * size - 1
    other = corner + torch.rand(count, 2, dtype=torch.float64) * size * 0.7 + 0.3
    rows = torch.cat([torch.arange(count, dtype=torch.float64)[:, None] % images, corner, other], 1)
    return (rows * 8).round() / 8 + torch.tensor([0.0] + [1 / 32] * 4, dtype=torch.float64)


@unittest.skipUnless(FOUND, "torchvision is not installed: pip install --no-deps torchvision==0.28.0")
class TestTorchvisionOps(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def compare(self, operator, reference, operands):
        """The operator on both devices against the reference in float64, over dtypes; with gradients."""
        for dtype, tolerance in DTYPES:
            given = [None if t is None else t.to(dtype) for t in operands]
            leaves = [None if t is None else t.double().requires_grad_() for t in given]
            expected = reference(*leaves)
            weights = torch.rand(expected.shape, dtype=torch.float64).to(dtype)
            wanted = [t for t in leaves if t is not None]
            expected_grads = torch.autograd.grad(expected, wanted, weights.double())
            for device in DEVICES:
                moved = [None if t is None else t.detach().to(device).requires_grad_() for t in given]
                actual = operator(*moved)
                self.assertEqual((actual.device.type, actual.dtype), (device, dtype))
                grads = torch.autograd.grad(actual, [t for t in moved if t is not None], weights.to(device))
                for a, e in zip((actual, *grads), (expected, *expected_grads), strict=True):
                    with self.subTest(device=device, dtype=dtype, sizes=tuple(e.shape)):
                        error = (a.detach().cpu().double() - e).abs().max() / max(1.0, e.abs().max().item())
                        self.assertLess(error.item(), tolerance)

    def test_roi_align(self):
        from torchvision.ops import roi_align as operator

        x = torch.randn(2, 3, 9, 11, dtype=torch.float64)
        rois = regions(7, 18)
        for ratio in (-1, 1, 3):
            for aligned in (False, True):
                with self.subTest(ratio=ratio, aligned=aligned):
                    self.compare(
                        lambda t, r=ratio, a=aligned: operator(t, rois.to(t), (2, 3), 0.5, r, a),
                        lambda t, r=ratio, a=aligned: roi_align(t, rois, (2, 3), 0.5, r, a),
                        [x],
                    )

    def test_roi_pool(self):
        from torchvision.ops import roi_pool as operator

        x = torch.randperm(2 * 2 * 9 * 11).view(2, 2, 9, 11).double() / 100  # no ties, in any dtype but bfloat16
        rois = regions(7, 18)
        for dtype, device in itertools.product((torch.float64, torch.float32, torch.float16), DEVICES):
            leaf, moved = x.to(dtype).double().requires_grad_(), x.to(dtype).to(device, copy=True).requires_grad_()
            expected, actual = (
                roi_pool(leaf, rois, (3, 2), 0.5),
                operator(moved, rois.to(dtype).to(device), (3, 2), 0.5),
            )
            self.assertTrue(torch.equal(actual.cpu().double(), expected))
            weights = torch.rand_like(expected).half()
            a = torch.autograd.grad(actual, moved, weights.to(device, dtype))[0].cpu().double()
            e = torch.autograd.grad(expected, leaf, weights.double())[0]
            torch.testing.assert_close(a, e, rtol=2e-3, atol=2e-3)

    def test_ps_roi_align(self):
        from torchvision.ops import ps_roi_align as operator

        x = torch.randn(2, 12, 9, 11, dtype=torch.float64)
        rois = regions(6, 18)
        for ratio in (-1, 2):
            with self.subTest(ratio=ratio):
                self.compare(
                    lambda t, r=ratio: operator(t, rois.to(t), (2, 3), 0.5, r),
                    lambda t, r=ratio: ps_roi_align(t, rois, (2, 3), 0.5, r),
                    [x],
                )

    def test_ps_roi_pool(self):
        from torchvision.ops import ps_roi_pool as operator

        x = torch.randn(2, 12, 14, 16, dtype=torch.float64)
        rois = regions(6, 12)  # away from the last row and column, where torchvision's gradient is not its value's
        self.compare(lambda t: operator(t, rois.to(t), (2, 3), 0.75), lambda t: ps_roi_pool(t, rois, (2, 3), 0.75), [x])

    def test_channel_mapping_and_places(self):
        import torchvision  # noqa: F401 - defines the operators

        for device in DEVICES:
            x, rois = torch.randn(1, 8, 6, 6, device=device), torch.tensor([[0.0, 0, 0, 4, 4]], device=device)
            for name, more in (("ps_roi_align", (2,)), ("ps_roi_pool", ())):
                mapping = getattr(torch.ops.torchvision, name)(x, rois, 1.0, 2, 2, *more)[1]
                self.assertEqual(mapping.dtype, torch.int32)
                self.assertEqual(mapping.flatten().tolist(), list(range(8)))
            out, places = torch.ops.torchvision.roi_pool(x, rois, 1.0, 2, 2)
            self.assertTrue(torch.equal(x[0].flatten(1).gather(1, places[0].flatten(1).long()), out[0].flatten(1)))

    def test_deform_conv2d(self):
        from torchvision.ops import deform_conv2d as operator

        names = ("channels", "out", "groups", "offset_groups", "kernel", "stride", "padding", "dilation")
        cases = (
            (4, 6, 2, 2, (3, 2), (2, 1), (1, 2), (1, 2)),
            (3, 2, 1, 1, (2, 3), (1, 1), (0, 0), (1, 1)),
        )
        for values in cases:
            case = dict(zip(names, values, strict=True))
            kernel, stride, padding, dilation = (case[k] for k in ("kernel", "stride", "padding", "dilation"))
            x = torch.randn(2, case["channels"], 7, 8, dtype=torch.float64)
            size = [
                (x.shape[2 + i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)
            ]
            taps = case["offset_groups"] * kernel[0] * kernel[1]
            # Multiples of 1/8 off whole numbers: the weights' kinks are not hit, and half precision is exact.
            offset = (torch.randn(2, 2 * taps, *size, dtype=torch.float64) * 4).round() / 4 + 0.125
            weight = torch.randn(case["out"], case["channels"] // case["groups"], *kernel, dtype=torch.float64) / 4
            bias = torch.randn(case["out"], dtype=torch.float64)
            for mask in (None, torch.rand(2, taps, *size, dtype=torch.float64)):
                with self.subTest(case=case, mask=mask is not None):
                    self.compare(
                        lambda t, o, w, b, m: operator(t, o, w, b, stride, padding, dilation, m),  # noqa: B023
                        lambda t, o, w, b, m: deform_conv2d(t, o, w, b, stride, padding, dilation, m),  # noqa: B023
                        [x, offset, weight, bias, mask],
                    )

    def test_empty_batches_and_regions(self):
        from torchvision.ops import deform_conv2d, nms, roi_align, roi_pool

        for device in DEVICES:
            x, none = torch.randn(1, 4, 5, 5, device=device, requires_grad=True), torch.zeros(0, 5, device=device)
            for out in (roi_align(x, none, 2), roi_pool(x, none, 2)):
                self.assertEqual(out.shape, (0, 4, 2, 2))
                self.assertFalse(torch.autograd.grad(out.sum(), x)[0].any())
            weight, offset = torch.randn(2, 4, 3, 3, device=device), torch.zeros(0, 18, 3, 3, device=device)
            self.assertEqual(deform_conv2d(x[:0], offset, weight).shape, (0, 2, 3, 3))
            self.assertEqual(nms(none[:, :4], none[:, 0], 0.5).tolist(), [])

    def test_wrong_operands_raise_at_the_call(self):
        from torchvision.ops import deform_conv2d, nms, ps_roi_align, roi_align

        x, rois = torch.randn(1, 4, 5, 5, device="npu"), torch.tensor([[0.0, 0, 0, 4, 4]], device="npu")
        for message, call in (
            ("rois must have shape", lambda: torch.ops.torchvision.roi_align(x, rois[:, 1:], 1.0, 2, 2, 2, False)),
            ("same dtype", lambda: torch.ops.torchvision.roi_align(x, rois.double(), 1.0, 2, 2, 2, False)),
            ("multiple of pooling height", lambda: ps_roi_align(x, rois, (3, 2))),
            ("different devices", lambda: torch.ops.torchvision.roi_align(x, rois.cpu(), 1.0, 2, 2, 2, False)),
            ("offset.shape", lambda: deform_conv2d(x, torch.zeros(1, 16, 3, 3, device="npu"), x[:, :, :3, :3])),
            ("not implemented for 'Int'", lambda: nms(rois[:, 1:].int(), rois[:, 0].int(), 0.5)),
        ):
            with self.subTest(message), self.assertRaisesRegex((RuntimeError, NotImplementedError), message):
                call()
        on_cpu = (
            (
                "rois must have shape",
                lambda: torch.ops.torchvision.roi_align(x.cpu(), rois.cpu()[:, 1:], 1, 2, 2, 2, False),
            ),
            ("a region is of image 3", lambda: roi_align(x.cpu(), torch.tensor([[3.0, 0, 0, 4, 4]]), 2)),
            ("different devices", lambda: torch.ops.torchvision.roi_align(x.cpu(), rois, 1.0, 2, 2, 2, False)),
        )
        for message, call in on_cpu:
            with self.subTest("cpu: " + message), self.assertRaisesRegex(RuntimeError, message):
                call()
        roi_align(x, torch.tensor([[3.0, 0, 0, 4, 4]], device="npu"), 2)
        with self.assertRaisesRegex(RuntimeError, "a region is of image 3, but there are 1"):
            torch.npu.synchronize()
        self.assertEqual(roi_align(x, rois, 2).shape, (1, 4, 2, 2))

    def test_autocast_computes_in_float32(self):
        from torchvision.ops import deform_conv2d, nms, roi_align

        # On npu; on the CPU autocast is torchvision's own business.
        dtype, device = torch.float16, "npu"
        x, rois = torch.randn(1, 4, 9, 9, device=device), torch.tensor([[0.0, 0, 0, 4, 4]], device=device)
        with torch.autocast(device, dtype=dtype):
            out = roi_align(x.to(dtype), rois, 2)
            conv = deform_conv2d(
                x.to(dtype), torch.zeros(1, 18, 7, 7, device=device), torch.randn(2, 4, 3, 3, device=device)
            )
            kept = nms(rois[:, 1:].to(dtype), rois[:, 0], 0.5)
        self.assertEqual((out.dtype, conv.dtype, kept.dtype), (dtype, dtype, torch.int64))
        self.assertTrue(torch.equal(out, roi_align(x.to(dtype).float(), rois, 2).to(dtype)))

    def test_second_derivatives_are_refused(self):
        from torchvision.ops import roi_align

        x = torch.randn(1, 4, 9, 9, device="npu", requires_grad=True)
        out = roi_align(x, torch.tensor([[0.0, 0, 0, 4, 4]], device="npu"), 2)
        (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "double backwards on roi_align not supported"):
            grad.sum().backward()


if __name__ == "__main__":
    unittest.main()
