"""Overlaps of boxes (torch/npu/operators/box_overlaps.py) against loops over boxes, and gradients by autograd."""

import math

from llm_ops_case import Call, LlmOpsTestCase, run_tests

import torch


def corners(box, centred):
    x, y, w, h = box
    return (x - w / 2, y - h / 2, x + w / 2, y + h / 2) if centred else (x, y, w, h)


def overlap(a, b, centred, mode, complete):
    """One number of two boxes; the share of the shapes is a constant."""
    (ax, ay, ar, al), (bx, by, br, bl) = corners(a, centred), corners(b, centred)
    inner = (torch.min(ar, br) - torch.max(ax, bx)).clamp(min=0) * (torch.min(al, bl) - torch.max(ay, by)).clamp(min=0)
    truth = (br - bx) * (bl - by)
    iou = inner / (truth if mode else (ar - ax) * (al - ay) + truth - inner)
    hull = (torch.max(ar, br) - torch.min(ax, bx)) ** 2 + (torch.max(al, bl) - torch.min(ay, by)) ** 2
    out = iou - (((ax + ar) / 2 - (bx + br) / 2) ** 2 + ((ay + al) / 2 - (by + bl) / 2) ** 2) / hull
    if complete:
        v = 4 / math.pi**2 * (torch.atan((br - bx) / (bl - by)) - torch.atan((ar - ax) / (al - ay))) ** 2
        out = out - (v / (1 - iou + v)).detach() * v
    return out


def table(a, b, trans, is_cross, mode, complete):
    if not is_cross:
        rows = [overlap(a[:, i], b[:, i], trans, mode, complete) for i in range(a.shape[1])]
        return torch.stack(rows).unsqueeze(0)
    return torch.stack(
        [
            torch.stack([overlap(a[:, i], b[:, j], trans, mode, complete) for i in range(a.shape[1])])
            for j in range(b.shape[1])
        ]
    )


def diou(a, b, trans=False, is_cross=False, mode=0):
    return table(a, b, trans, is_cross, mode, False)


def ciou(a, b, trans=False, is_cross=True, mode=0, _=False):
    return table(a, b, trans, is_cross, mode, True)


def backward(function):
    def run(grad, a, b, *rest):
        trans = rest[-3] if isinstance(rest[-1], int) and not isinstance(rest[-1], bool) else rest[-2]
        inputs = a.clone().requires_grad_(), b.clone().requires_grad_()
        return torch.autograd.grad(function(*inputs, trans, False), inputs, grad.view(1, -1))

    return run


def boxes(count, seed, centred):
    r = torch.rand(4, count, generator=torch.Generator().manual_seed(seed))
    return torch.stack([r[0] * 4, r[1] * 4, r[2] + 1, r[3] + 1]) if centred else torch.cat([r[:2], r[:2] + r[2:] + 0.3])


def calls() -> list[Call]:
    found = []
    for centred in (True, False):
        a, b, c = boxes(5, 1, centred), boxes(5, 2, centred), boxes(3, 3, centred)
        grad = torch.rand(1, 5, generator=torch.Generator().manual_seed(4))
        found += [
            Call("npu_diou", (a, b, centred), {}, diou),
            Call("npu_diou", (a, c, centred, True, 1), {}, diou),
            Call("npu_diou", (a.half(), b.half(), centred), {}, diou, (1e-5, 1e-2)),
            Call("npu_ciou", (a, c, centred), {}, ciou),
            Call("npu_ciou", (a, b, centred, False, 1, True), {}, ciou),
            Call("_npu_ciou", (a, b, centred, False), {}, lambda *x: (ciou(*x), torch.empty(0))),
            Call("npu_diou_backward", (grad, a, b, centred, False, 0), {}, backward(diou)),
            Call("npu_ciou_backward", (grad, a, b, None, centred, False, 0), {}, backward(ciou)),
        ]
    return found


class TestBoxOverlaps(LlmOpsTestCase):
    def test_calls(self):
        self.check_family("box_overlaps", calls())
        for call in calls():
            with self.subTest(name=call.name, given=call.args[2:]):
                self.check_call(call)
                self.check_compiled(call)

    def test_autograd(self):
        a, b = boxes(5, 1, True).npu().requires_grad_(), boxes(5, 2, True).npu().requires_grad_()
        for name in ("diou", "ciou"):
            out = getattr(torch, f"npu_{name}")(a, b, True, False)
            weight = torch.rand_like(out)
            wanted = torch.autograd.grad(out, (a, b), weight)
            rest = (True, False, 0) if name == "diou" else (None, True, False, 0)
            found = getattr(torch, f"npu_{name}_backward")(weight, a.detach(), b.detach(), *rest)
            self.assertEqual(found, wanted)

    def test_equal_boxes(self):
        a = boxes(4, 1, True).npu()
        self.assertEqual(torch.npu_ciou(a, a, True, False), torch.ones(1, 4).npu())

    def test_refusals(self):
        a, b = boxes(4, 1, True).npu(), boxes(3, 2, True).npu()
        for error, message, call in (
            (RuntimeError, "npu_diou: boxes must be", lambda: torch.npu_diou(a, b)),
            (RuntimeError, "npu_ciou: mode must be 0 or 1", lambda: torch.npu_ciou(a, b, mode=2)),
            (
                NotImplementedError,
                "atan_sub_flag must be False",
                lambda: torch.ops.npu._npu_ciou(a, b, atan_sub_flag=True),
            ),
            (NotImplementedError, "is_cross must be False", lambda: torch.npu_ciou_backward(a[:1], a, a, None)),
        ):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    run_tests()
