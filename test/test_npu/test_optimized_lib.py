"""torch.contrib.npu.optimized_lib on npu and cpu, and the example that is built on it, ShuffleNet's forms."""

import importlib.util
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "shufflenet"))

import forms
import network
from common_utils import TestCase, run_tests

import torch
from torch.contrib.npu.optimized_lib import ChannelShuffle, PreLoader, fast_rcnn_inference_single_image, pairwise_iou


def boxes_of(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(n, 2, generator=g) * 40
    return torch.cat([corner, corner + 1 + torch.rand(n, 2, generator=g) * 20], 1)


def iou(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    inner = max(w, 0) * max(h, 0)
    return inner / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inner)


class TestOptimizedLib(TestCase):
    def test_pairwise_iou(self):
        a, b = boxes_of(6), boxes_of(4, 1)
        expected = torch.tensor([[iou(x, y) for y in b.tolist()] for x in a.tolist()])

        class Boxes:
            def __init__(self, tensor):
                self.tensor = tensor

        for device in ("cpu", "npu"):
            self.assertEqual(pairwise_iou(a.to(device), b.to(device)), expected, prec=1e-5)
            self.assertEqual(pairwise_iou(Boxes(a.to(device)), Boxes(b.to(device))), expected, prec=1e-5)

    def test_inference(self):
        boxes = torch.cat([boxes_of(15, s) for s in range(3)], 1)
        scores = torch.rand(15, 4, generator=torch.Generator().manual_seed(4))
        boxes[3, 5], scores[4, 1] = float("inf"), float("nan")
        limit = torch.tensor([64.0, 50, 64, 50])
        found = []
        for k in range(3):
            kept = []
            for i in sorted(range(15), key=lambda i: -scores[i, k].nan_to_num().item()):
                if i in (3, 4) or scores[i, k] <= 0.3:
                    continue
                box = boxes[i, 4 * k : 4 * k + 4].clamp(min=0).minimum(limit).tolist()
                if all(iou(box, other) <= 0.2 for _, other in kept):
                    kept.append((i, box))
            found += [(scores[i, k].item(), k, i, box) for i, box in kept]
        found = sorted(found, key=lambda f: -f[0])[:7]
        for device in ("cpu", "npu"):
            out, rows = fast_rcnn_inference_single_image(boxes.to(device), scores.to(device), (50, 64), 0.3, 0.2, 7)
            self.assertEqual(out.image_size, (50, 64))
            self.assertEqual(out.scores, torch.tensor([f[0] for f in found]))
            self.assertEqual((out.pred_classes.tolist(), rows.tolist()), ([f[1] for f in found], [f[2] for f in found]))
            self.assertEqual(out.pred_boxes, torch.tensor([f[3] for f in found]), prec=1e-5)
        none, rows = fast_rcnn_inference_single_image(boxes.npu(), scores.npu(), (50, 64), 2.0, 0.2, 7)
        self.assertEqual((none.pred_boxes.shape, rows.shape), ((0, 4), (0,)))
        with self.assertRaisesRegex(ValueError, "boxes of shape"):
            fast_rcnn_inference_single_image(boxes[:, :8], scores, (50, 64), 0.3, 0.2, 7)

    def test_channel_shuffle(self):
        x1, x2 = torch.randn(2, 4, 3, 3), torch.randn(2, 8, 3, 3)
        for groups, split in ((2, True), (3, False)):
            c = [t.clone().requires_grad_() for t in (x1, x2)]
            expected = torch.cat(c, 1).view(2, groups, 12 // groups, 3, 3).transpose(1, 2).reshape(2, 12, 3, 3)
            weight = torch.randn(2, 12, 3, 3)
            (expected * weight).sum().backward()
            for device in ("cpu", "npu"):
                n = [t.clone().to(device).requires_grad_() for t in (x1, x2)]
                out = ChannelShuffle(12, groups, split).to(device)(*n)
                out = torch.cat(out, 1) if split else out
                self.assertEqual(out, expected)
                (out * weight.to(device)).sum().backward()
                self.assertEqual([t.grad for t in n], [t.grad for t in c])
        self.assertEqual(list(ChannelShuffle(4).state_dict()), [])
        with self.assertRaises(ValueError):
            ChannelShuffle(5)

    def test_preloader(self):
        data = torch.utils.data.TensorDataset(torch.arange(20.0).view(10, 2, 1, 1), torch.arange(10))
        loader = torch.utils.data.DataLoader(data, 3, pin_memory=True)
        preloader = PreLoader(loader, "npu:0", mean=[1.0, 2.0], std=[2.0, 4.0])
        self.assertEqual(len(preloader), 4)
        for _ in range(2):
            batches = list(preloader)
            self.assertEqual(torch.cat([b[1] for b in batches]).tolist(), list(range(10)))
            self.assertEqual(batches[0][0].device, torch.device("npu:0"))
            expected = (data.tensors[0] - torch.tensor([1.0, 2]).view(1, 2, 1, 1)) / torch.tensor([2.0, 4]).view(
                1, 2, 1, 1
            )
            self.assertEqual(torch.cat([b[0] for b in batches]), expected)
        plain = PreLoader([{"x": torch.ones(2), "name": "a"}])
        self.assertEqual(plain.next()["x"].device.type, "npu")
        self.assertEqual(plain.next(), (None, None))
        on_cpu = list(PreLoader(loader, "cpu"))
        self.assertEqual(torch.cat([b[0] for b in on_cpu]), data.tensors[0])


class TestShuffleNet(TestCase):
    def test_forms_compute_the_same(self):
        torch.manual_seed(0)
        state = network.ShuffleNetV2(forms.ByViews, 5, (8, 16, 32, 48, 24), (2, 2, 1)).state_dict()
        x, y = torch.randn(3, 3, 64, 64), torch.tensor([0, 4, 2])
        found = {}
        for name, form, device in (
            ("plain", forms.ByViews, "cpu"),
            ("at every call", forms.ByIndexAtEveryCall, "npu"),
            *((name, form, "npu") for name, form in forms.FORMS.items()),
        ):
            net = network.ShuffleNetV2(form, 5, (8, 16, 32, 48, 24), (2, 2, 1))
            net.load_state_dict(state)
            net.to(device)
            loss = torch.nn.functional.cross_entropy(net(x.to(device)), y.to(device))
            loss.backward()
            found[name] = [loss.detach(), net.conv1[0].weight.grad, net.stage3[1].branch2[0].weight.grad]
        for name, values in found.items():
            with self.subTest(name):
                self.assertEqual(values, found["plain"], prec=1e-4)

    @unittest.skipUnless(importlib.util.find_spec("torchvision"), "torchvision is not installed")
    def test_torchvisions_weights_fit(self):
        from torchvision.models import shufflenet_v2_x1_0

        torch.manual_seed(0)
        theirs, own = shufflenet_v2_x1_0().eval(), network.ShuffleNetV2().eval()
        own.load_state_dict(theirs.state_dict())
        x = torch.randn(1, 3, 64, 64)
        with torch.no_grad():
            self.assertEqual(own.npu()(x.npu()), theirs(x), prec=1e-4)


if __name__ == "__main__":
    run_tests()
