"""npu operators of object detectors against references written here, and against documented results."""

import math

from common_utils import TestCase, run_tests

import torch


def boxes_of(n, seed=0, size=50.0):
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(n, 2, generator=g) * size
    return torch.cat([corner, corner + 1 + torch.rand(n, 2, generator=g) * size / 2], 1)


def iou_of(a, b):
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    inner = max(w, 0) * max(h, 0)
    area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inner
    return inner / area if area > 0 else 0.0


def greedy(boxes, scores, limit, least=-math.inf, most=None):
    kept = []
    for i in sorted(range(len(scores)), key=lambda k: -scores[k]):
        if scores[i] <= least or (most is not None and len(kept) >= most):
            break
        if all(iou_of(boxes[k], boxes[i]) <= limit for k in kept):
            kept.append(i)
    return kept


class TestBoxes(TestCase):
    def test_decode_and_encode_documented(self):
        rois = torch.tensor([[1.0, 2, 3, 4], [3, 4, 5, 6]]).npu()
        deltas = torch.tensor([[5.0, 6, 7, 8], [7, 8, 9, 6]]).npu()
        out = torch.npu_bounding_box_decode(rois, deltas, 0, 0, 0, 0, 1, 1, 1, 1, (10, 10), 0.1)
        self.assertEqual(out, torch.tensor([[2.5, 6.5, 9, 9], [9, 9, 9, 9]]), prec=1e-4)
        encoded = torch.npu_bounding_box_encode(rois, deltas, 0, 0, 0, 0, 0.1, 0.1, 0.2, 0.2)
        expected = torch.tensor([[40 / 3, 40 / 3, 0, 0], [40 / 3, 20 / 3, 0, math.log(1 / 3) / 0.2]])
        self.assertEqual(encoded, expected, prec=1e-3)

    def test_decode_inverts_encode(self):
        for dtype, prec in ((torch.float32, 1e-3), (torch.float16, 0.3)):
            anchors, truth = boxes_of(20).to(dtype).npu(), boxes_of(20, 1).to(dtype).npu()
            numbers = (0.1, 0.0, 0.2, 0.0, 0.1, 0.1, 0.2, 0.2)
            deltas = torch.npu_bounding_box_encode(anchors, truth, *numbers)
            back = torch.npu_bounding_box_decode(anchors, deltas, *numbers, (1000, 1000), 1e-9)
            self.assertEqual(back.float(), truth.float(), prec=prec)

    def test_iou(self):
        a, b = boxes_of(7), boxes_of(5, 3)
        expected = torch.tensor([[iou_of(x, y) for x in a.tolist()] for y in b.tolist()])
        for op in (torch.npu_iou, torch.npu_ptiou):
            self.assertEqual(op(a.npu(), b.npu()), expected, prec=1e-5)
            # Over the ground truth's area: inner / union = r means inner = r / (1 + r) * (both areas).
            area_a, area_b = ((t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1]) for t in (a, b))
            inner = expected / (1 + expected) * (area_a[None] + area_b[:, None])
            self.assertEqual(op(a.npu(), b.npu(), 1), inner / area_b[:, None], prec=1e-4)
        half = torch.tensor([[0, 0, 10, 10.0]]).half().npu()
        self.assertEqual(torch.npu_iou(half, torch.tensor([[0, 0, 10, 20.0]]).half().npu()).item(), 0.5, prec=5e-3)
        nothing = torch.zeros(1, 4).npu()
        self.assertEqual(torch.npu_iou(nothing, nothing).item(), 0.0)
        with self.assertRaisesRegex(NotImplementedError, "npu_nms_with_mask.*Double"):
            torch.npu_nms_with_mask(torch.zeros(1, 5).double().npu(), 0.5)
        with self.assertRaisesRegex(RuntimeError, "npu_iou.*shape"):
            torch.npu_iou(torch.zeros(3).npu(), nothing)

    def test_iou_and_decode_gradients(self):
        a, b = boxes_of(6), boxes_of(4, 3)
        for op in (torch.npu_iou, torch.npu_ptiou):
            for mode in (0, 1):
                ca, cb = a.double().requires_grad_(), b.double().requires_grad_()
                inner = (
                    torch.min(ca[None, :, 2:], cb[:, None, 2:]) - torch.max(ca[None, :, :2], cb[:, None, :2])
                ).clamp(min=0)
                inner = inner.prod(2)
                area_a, area_b = ((t[:, 2:] - t[:, :2]).prod(1) for t in (ca, cb))
                expected = inner / (area_b[:, None] + 0 * inner if mode else area_a + area_b[:, None] - inner)
                na, nb = a.npu().requires_grad_(), b.npu().requires_grad_()
                out = op(na, nb, mode)
                self.assertEqual(out, expected.float(), prec=1e-5)
                expected.square().sum().backward()
                out.square().sum().backward()
                self.assertEqual(na.grad, ca.grad.float(), prec=1e-5)
                self.assertEqual(nb.grad, cb.grad.float(), prec=1e-5)
        rois, deltas = boxes_of(5), torch.randn(5, 4, generator=torch.Generator().manual_seed(8)) * 0.5
        numbers = (0.1, 0.0, 0.2, 0.0, 0.5, 0.5, 2.0, 2.0, (40, 60), 0.5)
        plain = torch.npu_bounding_box_decode(rois.npu(), deltas.npu(), *numbers)
        n = deltas.npu().requires_grad_()
        out = torch.npu_bounding_box_decode(rois.npu(), n, *numbers)
        self.assertEqual(out, plain, prec=1e-4)
        out.square().sum().backward()
        step, numeric = 1e-2, torch.zeros(5, 4)
        for i in range(5):
            for k in range(4):
                for sign in (1, -1):
                    moved = deltas.clone()
                    moved[i, k] += sign * step
                    value = torch.npu_bounding_box_decode(rois.npu(), moved.npu(), *numbers).double().square().sum()
                    numeric[i, k] += sign * value.item() / (2 * step)
        self.assertEqual(n.grad / 1000, numeric / 1000, prec=0.2)

    @staticmethod
    def giou_reference(a, b, centred):
        if centred:
            a = torch.stack([a[0] - a[2] / 2, a[1] - a[3] / 2, a[0] + a[2] / 2, a[1] + a[3] / 2])
            b = torch.stack([b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2])
        inner = (torch.min(a[2], b[2]) - torch.max(a[0], b[0])).clamp(0) * (
            torch.min(a[3], b[3]) - torch.max(a[1], b[1])
        ).clamp(0)
        union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inner
        hull = (torch.max(a[2], b[2]) - torch.min(a[0], b[0])) * (torch.max(a[3], b[3]) - torch.min(a[1], b[1]))
        return inner / union - (hull - union) / hull

    def test_giou_and_gradient(self):
        for centred in (True, False):
            a, b = boxes_of(9).t().contiguous(), boxes_of(9, 1).t().contiguous()
            ca, cb = a.double().requires_grad_(), b.double().requires_grad_()
            na, nb = a.npu().requires_grad_(), b.npu().requires_grad_()
            expected = self.giou_reference(ca, cb, centred)
            out = torch.npu_giou(na, nb, trans=centred)
            self.assertEqual(out.shape, (9, 1))
            self.assertEqual(out[:, 0], expected.float(), prec=1e-5)
            weight = torch.rand(9)
            (expected * weight).sum().backward()
            (out[:, 0] * weight.npu()).sum().backward()
            self.assertEqual(na.grad, ca.grad.float(), prec=1e-5)
            self.assertEqual(nb.grad, cb.grad.float(), prec=1e-5)
        cross = torch.npu_giou(a.npu(), b[:, :4].contiguous().npu(), is_cross=True)
        self.assertEqual(cross.shape, (9, 4))
        self.assertEqual(cross[3, 2], self.giou_reference(a[:, 3], b[:, 2], False), prec=1e-5)

    def test_rotated_boxes_documented(self):
        one = torch.ones(5).npu()
        box = torch.tensor([30.69, 32.6, 45.94, 59.88, -44.53]).view(1, 5, 1).npu()
        truth = torch.tensor([30.44, 18.72, 33.22, 45.56, 8.5]).view(1, 5, 1).npu()
        out = torch.npu_rotated_box_encode(box, truth, one)
        self.assertEqual(out.flatten(), torch.tensor([-0.4253, -0.5166, -1.7021, -0.0162, 1.1328]), prec=1e-3)
        self.assertEqual(torch.npu_rotated_box_decode(box, out, one).flatten(), truth.flatten(), prec=1e-3)
        box = torch.tensor([4.137, 33.72, 29.4, 54.06, 41.28]).view(1, 5, 1).npu()
        deltas = torch.tensor([0.0244, -1.992, 0.2109, 0.315, -37.25]).view(1, 5, 1).npu()
        out = torch.npu_rotated_box_decode(box, deltas, one).flatten()
        self.assertEqual(out, torch.tensor([1.7861, -10.5781, 33.0, 17.2969, -88.4375]), prec=3e-2)
        weight = torch.tensor([1.0, 2, 3, 4, 5]).npu()
        self.assertEqual(
            torch.npu_rotated_box_decode(box, torch.npu_rotated_box_encode(box, truth, weight), weight).flatten(),
            truth.flatten(),
            prec=1e-3,
        )

    def test_yolo_boxes_encode(self):
        anchors, truth = boxes_of(6), boxes_of(6, 2)
        stride = torch.tensor([8, 8, 16, 16, 32, 32], dtype=torch.int32)
        centre, size = (anchors[:, :2] + anchors[:, 2:]) / 2, anchors[:, 2:] - anchors[:, :2]
        t_centre, t_size = (truth[:, :2] + truth[:, 2:]) / 2, truth[:, 2:] - truth[:, :2]
        expected = torch.cat(
            [((t_centre - centre) / stride[:, None] + 0.5).clamp(1e-6, 1 - 1e-6), (t_size / size).log()], 1
        )
        self.assertEqual(torch.npu_yolo_boxes_encode(anchors.npu(), truth.npu(), stride.npu()), expected, prec=1e-4)

    def test_anchor_response_flags(self):
        truth = torch.tensor([[0.0, 0, 4, 4], [10, 2, 14, 6], [500, 500, 510, 510]])
        out = torch.npu_anchor_response_flags(truth.npu(), [4, 8], [2, 2], 3)
        expected = torch.zeros(4, 8, dtype=torch.uint8)
        expected[1, 1] = expected[2, 6] = 1
        self.assertEqual(out, expected.reshape(-1, 1).expand(-1, 3).reshape(-1))

    def test_grid_assign_positive(self):
        g = torch.Generator().manual_seed(5)
        overlaps = torch.rand(3, 10, generator=g)
        best, which = overlaps.max(0)
        gt_best, gt_which = overlaps.max(1)
        flags = (torch.rand(10, generator=g) > 0.3).to(torch.uint8)
        for every in (True, False):
            expected = torch.zeros(10)
            for i in range(10):
                if best[i] > 0.6 and flags[i]:
                    expected[i] = which[i] + 1
            for k in range(3):
                if gt_best[k] > 0.1:
                    for i in range(10) if every else [int(gt_which[k])]:
                        if flags[i] and (not every or overlaps[k, i] == gt_best[k]):
                            expected[i] = k + 1
            out = torch.npu_grid_assign_positive(
                torch.zeros(10).npu(), overlaps.npu(), flags.npu(), best.npu(), which.int().npu(), gt_best.npu(),
                gt_which.int().npu(), 128, 0.6, 0.1, every,
            )  # fmt: skip
            self.assertEqual(out, expected)


class TestSuppression(TestCase):
    def test_with_mask(self):
        documented = torch.tensor([[0.0, 1, 2, 3, 0.6], [6, 7, 8, 9, 0.4]]).npu()
        boxes, index, mask = torch.npu_nms_with_mask(documented, 0.5)
        self.assertEqual((boxes, index.tolist(), mask.tolist()), (documented, [0, 1], [1, 1]))
        raw, scores = boxes_of(40, size=30), torch.rand(40, generator=torch.Generator().manual_seed(1))
        boxes, index, mask = torch.npu_nms_with_mask(torch.cat([raw, scores[:, None]], 1).npu(), 0.3)
        self.assertEqual(index.cpu(), scores.argsort(descending=True).int())
        self.assertEqual(boxes.cpu()[:, :4], raw[index.cpu().long()])
        self.assertEqual(index[mask.bool()].tolist(), greedy(raw.tolist(), scores.tolist(), 0.3))

    def test_v4(self):
        raw, scores = boxes_of(60, size=30), torch.rand(60, generator=torch.Generator().manual_seed(2))
        limit, least = torch.tensor(0.4).npu(), torch.tensor(0.2).npu()
        index, count = torch.npu_nms_v4(raw.npu(), scores.npu(), 20, limit, least)
        expected = greedy(raw.tolist(), scores.tolist(), 0.4, 0.2, 20)
        self.assertEqual((index.shape, count.item()), ((20,), len(expected)))
        self.assertEqual(index[: count.item()].tolist(), expected)
        self.assertEqual(index[count.item() :].tolist(), [0] * (20 - len(expected)))

    def test_batch(self):
        g = torch.Generator().manual_seed(3)
        raw = torch.stack([boxes_of(12, s, 20) for s in (1, 2)])
        scores = torch.rand(2, 12, 3, generator=g)
        out, best, kinds, count = torch.npu_batch_nms(raw[:, :, None].npu(), scores.npu(), 0.2, 0.3, 3, 5)
        for b in range(2):
            found = []
            for k in range(3):
                for i in greedy(raw[b].tolist(), scores[b, :, k].tolist(), 0.3, 0.2, 3):
                    found.append((float(scores[b, i, k]), k, i))
            found = sorted(found, key=lambda f: -f[0])[:5]
            n = len(found)
            self.assertEqual(count[b].item(), n)
            self.assertEqual(best[b, :n].cpu(), torch.tensor([f[0] for f in found]))
            self.assertEqual(kinds[b, :n].tolist(), [float(f[1]) for f in found])
            self.assertEqual(out[b, :n].cpu(), raw[b, [f[2] for f in found]])
            self.assertEqual(out[b, n:].abs().sum().item(), 0.0)
        turned = torch.npu_batch_nms(
            raw[:, None].transpose(2, 3).npu(), scores.transpose(1, 2).npu(), 0.2, 0.3, 3, 5, transpose_box=True
        )
        self.assertEqual(turned[0], out)

    def test_sub_sample(self):
        torch.manual_seed(0)
        labels = torch.tensor([1] * 6 + [0] * 20 + [-1] * 4, dtype=torch.int32)[torch.randperm(30)]
        seen = set()
        for _ in range(5):
            out = torch.npu_sub_sample(labels.npu(), 10, 0.3).cpu()
            self.assertEqual(((out == 1).sum().item(), (out == 0).sum().item()), (3, 7))
            self.assertTrue(((out == labels) | (out == -1)).all())
            seen.add(tuple(out.tolist()))
        self.assertGreater(len(seen), 1)
        few = torch.npu_sub_sample(torch.tensor([1, 0, -1], dtype=torch.int32).npu(), 10, 0.5)
        self.assertEqual(few.tolist(), [1, 0, -1])

    def test_random_choice_with_mask(self):
        x = torch.tensor([[True, False, True], [True, True, False]])
        index, valid = torch.npu_random_choice_with_mask(x.npu(), 2, 1, 0)
        self.assertEqual((index.shape, valid.tolist()), ((2, 2), [True, True]))
        rows = {tuple(r) for r in index.tolist()}
        self.assertEqual(len(rows), 2)
        self.assertTrue(all(x[r] for r in rows))
        again = torch.npu_random_choice_with_mask(x.npu(), 2, 1, 0)[0]
        self.assertEqual(again, index)
        index, valid = torch.npu_random_choice_with_mask(x.npu(), 6)
        self.assertEqual(valid.tolist(), [True] * 4 + [False] * 2)
        self.assertEqual({tuple(r) for r in index[:4].tolist()}, {(0, 0), (0, 2), (1, 0), (1, 1)})
        self.assertEqual(torch.npu_random_choice_with_mask(x.npu(), 0)[0].shape, (4, 2))


class TestRotated(TestCase):
    @staticmethod
    def by_sampling(a, b, n=400):
        """Areas by counting points of a fine grid: slow, and independent of clipping."""

        def inside(box, x, y):
            angle = math.radians(box[4])
            dx, dy = x - box[0], y - box[1]
            u, v = dx * math.cos(angle) + dy * math.sin(angle), -dx * math.sin(angle) + dy * math.cos(angle)
            return (u.abs() <= box[2] / 2) & (v.abs() <= box[3] / 2)

        reach = max(a[2] + a[3], b[2] + b[3])
        x = torch.linspace(a[0] - reach, a[0] + reach, n, dtype=torch.float64)
        y = torch.linspace(a[1] - reach, a[1] + reach, n, dtype=torch.float64)
        x, y = torch.meshgrid(x, y, indexing="ij")
        cell = (2 * reach / (n - 1)) ** 2
        return (inside(a, x, y) & inside(b, x, y)).sum().item() * cell

    def test_overlaps(self):
        g = torch.Generator().manual_seed(4)

        def rotated(n):
            t = torch.rand(2, 5, n, generator=g)
            return torch.stack([t[:, 0] * 4, t[:, 1] * 4, 1 + t[:, 2] * 4, 1 + t[:, 3] * 4, t[:, 4] * 360 - 180], 1)

        a, b = rotated(3), rotated(4)
        areas = torch.npu_rotated_overlaps(a.npu(), b.npu()).cpu()
        ratio = torch.npu_rotated_iou(a.npu(), b.npu()).cpu()
        iof = torch.npu_rotated_iou(a.npu(), b.npu(), mode=1).cpu()
        self.assertEqual(areas.shape, (2, 3, 4))
        for n in range(2):
            for i in range(3):
                for j in range(4):
                    p, q = a[n, :, i].tolist(), b[n, :, j].tolist()
                    shared = self.by_sampling(p, q)
                    self.assertLess(abs(areas[n, i, j].item() - shared), 0.05 + 0.02 * shared)
                    area = areas[n, i, j].item()
                    self.assertEqual(ratio[n, i, j].item(), area / (p[2] * p[3] + q[2] * q[3] - area), prec=1e-4)
                    self.assertEqual(iof[n, i, j].item(), area / (p[2] * p[3]), prec=1e-4)
        pairs = torch.npu_rotated_iou(a.npu(), b[:, :, :3].contiguous().npu(), is_cross=False)
        self.assertEqual(pairs, torch.diagonal(ratio[:, :, :3], dim1=1, dim2=2), prec=1e-6)
        corners = torch.stack(
            [a[:, 0] - a[:, 2] / 2, a[:, 1] - a[:, 3] / 2, a[:, 0] + a[:, 2] / 2, a[:, 1] + a[:, 3] / 2, a[:, 4]], 1
        )
        self.assertEqual(
            torch.npu_rotated_iou(corners.npu(), corners.npu(), trans=True)[0].diagonal(), torch.ones(3), prec=1e-5
        )

    def test_nms_documented(self):
        dets = torch.tensor(DETS)
        index, count = torch.npu_nms_rotated(dets.npu(), torch.tensor(SCORES).npu(), 0.2, 0, -1, 1)
        self.assertEqual((index.tolist(), count.tolist()), ([8, 12, 2, 18], [4]))


DETS = [
    [1038.2, 316.57, 1155.6, 443.03, 2.3674],
    [1150.3, 305.98, 1260.2, 434.56, 0.32729],
    [1150.8, 306.52, 1260.7, 434.72, 0.51713],
    [1151.8, 307.81, 1262.2, 434.48, 0.39718],
    [1174.8, 302.02, 1285.9, 439.15, 1.8112],
    [1171.1, 304.80, 1286.8, 435.51, 2.1171],
    [1167.3, 306.75, 1288.9, 431.94, 2.5968],
    [1274.1, 301.81, 1382.3, 430.36, 2.0379],
    [1274.1, 302.86, 1383.6, 429.40, 2.2072],
    [1273.3, 303.82, 1385.5, 428.46, 2.0921],
    [1293.5, 305.17, 1396.1, 431.37, 2.9583],
    [1407.6, 321.73, 1493.0, 427.14, 2.6099],
    [1409.7, 324.96, 1493.4, 426.51, 3.0967],
    [1409.7, 325.69, 1493.5, 426.32, 2.5553],
    [1027.9, 318.83, 1141.2, 446.46, 1.2030],
    [1027.5, 317.76, 1140.8, 446.41, 1.2732],
    [1028.9, 316.94, 1140.7, 445.10, 0.94897],
    [1037.2, 312.33, 1147.7, 445.21, 1.4125],
    [1037.0, 315.64, 1148.7, 443.17, 1.6109],
    [1036.7, 316.82, 1151.0, 440.20, 1.4112],
]
SCORES = [
    0.9910, 0.9854, 0.9972, 0.9930, 0.4282, 0.5092, 0.6532, 0.9965, 0.9989, 0.9976,
    0.3144, 0.9874, 0.9980, 0.9967, 0.9698, 0.9824, 0.9474, 0.9856, 0.9964, 0.9926,
]  # fmt: skip


class TestRegions(TestCase):
    def test_roi_align_documented(self):
        x = torch.arange(1.0, 37).view(1, 1, 6, 6).npu()
        rois = torch.tensor([[0, -2.0, -2.0, 22.0, 22.0]]).npu()
        out = torch.npu_roi_align(x, rois, 0.25, 3, 3, 2, 0)
        self.assertEqual(out.flatten(), torch.tensor([4.5, 6.5, 8.5, 16.5, 18.5, 20.5, 28.5, 30.5, 32.5]), prec=1e-5)

    @staticmethod
    def sample(plane, y, x):
        h, w = plane.shape
        if y < -1 or y > h or x < -1 or x > w:
            return plane.sum() * 0
        y, x = min(max(y, 0.0), h - 1.0), min(max(x, 0.0), w - 1.0)
        r, c = int(y), int(x)
        r1, c1, a, b = min(r + 1, h - 1), min(c + 1, w - 1), y - int(y), x - int(x)
        return (
            plane[r, c] * (1 - a) * (1 - b)
            + plane[r, c1] * (1 - a) * b
            + plane[r1, c] * a * (1 - b)
            + plane[r1, c1] * a * b
        )

    def test_roi_align_and_gradient(self):
        g = torch.Generator().manual_seed(6)
        x = torch.rand(2, 2, 7, 8, generator=g)
        rois = torch.tensor([[0, 1.0, 2.0, 9.0, 11.0], [1, 0.0, 0.0, 15.5, 6.0], [1, 3.0, 3.0, 3.5, 3.5]])
        for mode in (0, 1, 2):
            cx, nx = x.double().requires_grad_(), x.npu().requires_grad_()
            rows = []
            for roi in rois.tolist():
                shift, last = (0.5 if mode == 2 else 0.0), (1.0 if mode == 1 else 0.0)
                x0, y0 = roi[1] * 0.5 - shift, roi[2] * 0.5 - shift
                w, h = (roi[3] + last) * 0.5 - shift - x0, (roi[4] + last) * 0.5 - shift - y0
                if mode != 2:
                    w, h = max(w, 1.0), max(h, 1.0)
                for ch in range(2):
                    for i in range(2):
                        for j in range(3):
                            points = [
                                self.sample(
                                    cx[int(roi[0]), ch],
                                    y0 + h / 2 * (i + (a + 0.5) / 2),
                                    x0 + w / 3 * (j + (b + 0.5) / 2),
                                )
                                for a in range(2)
                                for b in range(2)
                            ]
                            rows.append(sum(points) / 4)
            expected = torch.stack(rows).view(3, 2, 2, 3)
            out = torch.npu_roi_align(nx, rois.npu(), 0.5, 2, 3, 2, mode)
            self.assertEqual(out, expected.float(), prec=1e-5)
            weight = torch.rand(3, 2, 2, 3, generator=g)
            (expected * weight).sum().backward()
            (out * weight.npu()).sum().backward()
            self.assertEqual(nx.grad, cx.grad.float(), prec=1e-5)

    def test_ps_roi_pooling_and_gradient(self):
        g = torch.Generator().manual_seed(7)
        x = torch.rand(2, 3 * 4, 9, 10, generator=g)
        rois = torch.tensor([[[0.0], [3], [2], [9], [9]], [[1.0], [1], [4], [15], [12]]])
        cx, nx = x.double().requires_grad_(), x.npu().requires_grad_()
        rows = []
        for roi in rois.transpose(1, 2).reshape(-1, 5).tolist():
            x0, y0 = round(roi[1]) * 0.5, round(roi[2]) * 0.5
            w, h = max(round(roi[3] + 1) * 0.5 - x0, 0.1) / 2, max(round(roi[4] + 1) * 0.5 - y0, 0.1) / 2
            for k in range(3):
                for i in range(2):
                    for j in range(2):
                        top, bottom = (
                            min(max(int(v), 0), 9) for v in (math.floor(i * h + y0), math.ceil((i + 1) * h + y0))
                        )
                        left, right = (
                            min(max(int(v), 0), 10) for v in (math.floor(j * w + x0), math.ceil((j + 1) * w + x0))
                        )
                        plane = cx[int(roi[0]), (k * 2 + i) * 2 + j]
                        empty = bottom <= top or right <= left
                        rows.append(plane.sum() * 0 if empty else plane[top:bottom, left:right].mean())
        expected = torch.stack(rows).view(2, 3, 2, 2)
        out = torch.npu_ps_roi_pooling(nx, rois.npu(), 0.5, 2, 3)
        self.assertEqual(out, expected.float(), prec=1e-5)
        weight = torch.rand(2, 3, 2, 2, generator=g)
        (expected * weight).sum().backward()
        (out * weight.npu()).sum().backward()
        self.assertEqual(nx.grad, cx.grad.float(), prec=1e-5)

    @staticmethod
    def deformable_reference(x, weight, offset, bias, stride, pad, groups):
        """Every tap by differentiable bilinear interpolation, gathered with zeros outside."""
        n, c, h, w = x.shape
        kh, kw = weight.shape[2:]
        oh, ow = offset.shape[2:]
        taps = groups * kh * kw
        dx, dy, mask = offset[:, :taps], offset[:, taps : 2 * taps], offset[:, 2 * taps :]
        padded = torch.nn.functional.pad(x, (1, 2, 1, 2))
        out = x.new_zeros(n, weight.shape[0], oh, ow)
        for b in range(n):
            for i in range(oh):
                for j in range(ow):
                    total = bias.clone()
                    for g in range(groups):
                        for r in range(kh):
                            for s in range(kw):
                                t = (g * kh + r) * kw + s
                                y = i * stride - pad + r + dy[b, t, i, j]
                                q = j * stride - pad + s + dx[b, t, i, j]
                                if not (-1 < y < h and -1 < q < w):
                                    continue
                                y0, q0 = int(math.floor(y.item())), int(math.floor(q.item()))
                                a, e = y - y0, q - q0
                                part = slice(g * c // groups, (g + 1) * c // groups)
                                p = padded[b, part, y0 + 1 : y0 + 3, q0 + 1 : q0 + 3]
                                value = (
                                    p[:, 0, 0] * (1 - a) * (1 - e)
                                    + p[:, 0, 1] * (1 - a) * e
                                    + p[:, 1, 0] * a * (1 - e)
                                    + p[:, 1, 1] * a * e
                                )
                                total = total + weight[:, part, r, s] @ (value * mask[b, t, i, j])
                    out[b, :, i, j] = total
        return out

    def test_deformable_conv2d_and_gradient(self):
        g = torch.Generator().manual_seed(8)
        x, weight = torch.rand(1, 4, 5, 6, generator=g), torch.rand(3, 4, 3, 3, generator=g)
        offset = torch.rand(1, 2 * 9 * 3, 3, 3, generator=g) * 2 - 1
        bias = torch.rand(3, generator=g)
        cpu = [t.double().requires_grad_() for t in (x, weight, offset, bias)]
        npu = [t.npu().requires_grad_() for t in (x, weight, offset, bias)]
        expected = self.deformable_reference(*cpu, 2, 1, 2)
        out, sampled = torch.npu_deformable_conv2d(
            *npu, kernel_size=[3, 3], stride=[1, 1, 2, 2], padding=[1, 1, 1, 1], deformable_groups=2
        )
        self.assertEqual((sampled.shape, out.shape), ((1, 4, 9, 9), (1, 3, 3, 3)))
        self.assertEqual(out, expected.float(), prec=1e-4)
        weights = torch.rand(1, 3, 3, 3, generator=g)
        (expected * weights).sum().backward()
        (out * weights.npu()).sum().backward()
        for name, a, b in zip(("input", "weight", "offset", "bias"), npu, cpu, strict=True):
            self.assertEqual(a.grad, b.grad.float(), name, prec=1e-4)


if __name__ == "__main__":
    run_tests()
