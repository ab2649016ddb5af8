"""torchvision's unmodified wheel: it imports, its operators are provided only then, and nms works on cpu and npu."""

import importlib.util
import math
import os
import subprocess
import sys
import time
import unittest

import torch

FOUND = importlib.util.find_spec("torchvision") is not None


def greedy(boxes, scores, threshold):
    """Non-maximum suppression spelled out: best box first, each kept one removes what overlaps it."""
    boxes, order = boxes.tolist(), scores.sort(descending=True, stable=True)[1].tolist()
    kept = []
    while order:
        best = order.pop(0)
        kept.append(best)
        a = boxes[best]
        left = []
        for other in order:
            b = boxes[other]
            width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
            height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
            both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
            if width * height / (both - width * height) <= threshold:
                left.append(other)
        order = left
    return kept


def some_boxes(count):
    corner = torch.rand(count, 2, dtype=torch.float64) * 100
    return torch.cat([corner, corner + torch.rand(count, 2, dtype=torch.float64) * 60 + 1], 1)


@unittest.skipUnless(FOUND, "torchvision is not installed: pip install --no-deps torchvision==0.28.0")
class TestTorchvision(unittest.TestCase):
    def test_import_is_silent_and_operators_come_with_it(self):
        code = """
import torch
assert not hasattr(torch.ops.torchvision, "nms")
import torchvision
from torchvision.extension import _has_ops
assert _has_ops() and torch.ops.torchvision._cuda_version() == -1
for name in ("nms", "qnms", "roi_align", "qroi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d",
             "_roi_align_backward", "_roi_pool_backward", "_ps_roi_align_backward", "_ps_roi_pool_backward",
             "_deform_conv2d_backward"):
    getattr(torch.ops.torchvision, name).default
"""
        environment = {**os.environ, "PYTHONWARNINGS": "error"}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_nms_keeps_what_the_greedy_loop_keeps(self):
        from torchvision.ops import nms

        torch.manual_seed(0)
        for device in ("cpu", "npu"):
            for count in (0, 1, 2, 60):
                boxes, scores = some_boxes(count).float(), torch.rand(count)
                for threshold in (0.0, 0.3, 0.7, 1.0):
                    with self.subTest(device=device, count=count, threshold=threshold):
                        kept = nms(boxes.to(device), scores.to(device), threshold)
                        self.assertEqual((kept.device.type, kept.dtype), (device, torch.int64))
                        self.assertEqual(kept.tolist(), greedy(boxes, scores, threshold))

    def test_nms_of_many_boxes(self):
        """What a grid of boxes must not change: crowds, strangers, negative thresholds, corners that are no numbers."""
        from torchvision.ops import nms

        torch.manual_seed(1)
        wild = some_boxes(40).float()
        wild[3, 2], wild[7, 0], wild[11] = math.inf, math.nan, wild[11].flip(0)
        strange = some_boxes(300).float() * torch.rand(300, 1) * 20
        strange[::7, 2:] = strange[::7, :2]  # empty boxes
        for name, boxes in (
            ("crowd", some_boxes(300).float()),
            ("strange", strange),
            ("points", strange[:, [0, 1, 0, 1]]),
        ):
            scores = torch.rand(len(boxes))
            for threshold in (0.0, 0.4, 0.9):
                with self.subTest(name, threshold=threshold):
                    expected = greedy(boxes.double(), scores, threshold) if name == "crowd" else None
                    results = [nms(boxes.to(d), scores.to(d), threshold).tolist() for d in ("cpu", "npu")]
                    self.assertEqual(results[0], results[1])
                    if expected is not None:
                        self.assertEqual(results[0], expected)
        for boxes, threshold in ((wild, 0.4), (some_boxes(40).float(), -0.5)):
            scores = torch.rand(40)
            self.assertEqual(*(nms(boxes.to(d), scores.to(d), threshold).tolist() for d in ("cpu", "npu")))
        far = torch.tensor([[0.0, 0, 1, 1], [5, 5, 6, 6], [9, 9, 10, 10]])
        self.assertEqual(nms(far, torch.tensor([0.1, 0.9, 0.5]), -0.5).tolist(), [1])

    def test_nms_is_fast(self):
        from torchvision.ops import nms

        torch.manual_seed(0)
        corner = torch.rand(5000, 2) * 1000
        boxes, scores = torch.cat([corner, corner + torch.rand(5000, 2) * 50 + 1], 1), torch.rand(5000)
        nms(boxes, scores, 0.5)
        best = min(self.seconds(lambda: nms(boxes, scores, 0.5)) for _ in range(5))
        self.assertLess(best, 0.1)  # a millisecond or two where nothing else runs

    @staticmethod
    def seconds(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def test_equal_scores_keep_their_order(self):
        from torchvision.ops import nms

        boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [50, 50, 60, 60]])
        for device in ("cpu", "npu"):
            self.assertEqual(nms(boxes.to(device), torch.ones(3, device=device), 0.5).tolist(), [0, 2])

    def test_batched_nms_and_wrong_shapes(self):
        from torchvision.ops import batched_nms, nms

        boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 10]], device="npu")
        kept = batched_nms(
            boxes, torch.tensor([0.1, 0.9, 0.5], device="npu"), torch.tensor([0, 1, 0], device="npu"), 0.5
        )
        self.assertEqual(kept.tolist(), [1, 2])
        with self.assertRaisesRegex(RuntimeError, "boxes should have 4 elements in dimension 1, got 3"):
            nms(torch.zeros(2, 3), torch.zeros(2), 0.5)
        with self.assertRaisesRegex(RuntimeError, "got 2 and 3"):
            nms(torch.zeros(2, 4), torch.zeros(3), 0.5)


if __name__ == "__main__":
    unittest.main()
