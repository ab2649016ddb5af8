"""torchvision's operators where its binary cannot be loaded (its wheel is linked against CUDA's libraries).

`torch.ops.load_library` calls `provide` only when loading torchvision's extension has failed, so nothing here costs a
script that does not import torchvision. The schemas are those that torchvision's Python code looks for. The kernels for
npu and the CPU are libtorch_npu's, the autograd formulas torchvision's own. Where the npu device is left out
(TORCH_DEVICE_BACKEND_AUTOLOAD=0), the CPU has nms only.
"""

import os

import torch

_BOX = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_IMAGE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_CONV = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    f"roi_align(Tensor input, Tensor rois, {_BOX}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_BOX}, {_IMAGE}, int sampling_ratio, bool aligned) -> Tensor",
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
    f"int rois_zero_point, {_BOX}, int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, {_BOX}) -> (Tensor, Tensor)",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_BOX}, {_IMAGE}) -> Tensor",
    f"ps_roi_align(Tensor input, Tensor rois, {_BOX}, int sampling_ratio) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BOX}, int sampling_ratio, {_IMAGE})"
    " -> Tensor",
    f"ps_roi_pool(Tensor input, Tensor rois, {_BOX}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BOX}, {_IMAGE}) -> Tensor",
    f"deform_conv2d({_CONV}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_CONV}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "_cuda_version() -> int",
)
_library = None  # the definitions live as long as this


def _check_boxes(dets, scores) -> None:
    torch._check(dets.dim() == 2, lambda: f"boxes should be a 2d tensor, got {dets.dim()}D")
    torch._check(dets.size(1) == 4, lambda: f"boxes should have 4 elements in dimension 1, got {dets.size(1)}")
    torch._check(scores.dim() == 1, lambda: f"scores should be a 1d tensor, got {scores.dim()}D")
    torch._check(
        dets.size(0) == scores.size(0),
        lambda: (
            "boxes and scores should have same number of elements in dimension 0, "
            f"got {dets.size(0)} and {scores.size(0)}"
        ),
    )


def _overlaps(boxes, others, iou_threshold: float):
    """Whether the intersection over union of two boxes exceeds the threshold, for [N, 4] and [M, 4]: [N, M]."""
    corner = torch.maximum(boxes[:, None, :2], others[None, :, :2])
    sides = (torch.minimum(boxes[:, None, 2:], others[None, :, 2:]) - corner).clamp_(min=0)
    shared = sides[..., 0] * sides[..., 1]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    other_area = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    return shared / (area[:, None] + other_area[None, :] - shared) > iou_threshold


def _nms(dets, scores, iou_threshold: float):
    """Greedy non-maximum suppression without a loop over boxes.

    A box is kept if no better box that is kept overlaps it too much. Starting from "all kept", applying that sentence
    again and again settles after as many rounds as the longest chain of suppressions, usually a handful; each round is
    one product of a matrix and a vector, so the work stays on the tensors' device. Returns the indices of the kept
    boxes, best first, int64.
    """
    _check_boxes(dets, scores)
    torch._check(dets.dtype == scores.dtype, lambda: "dets should have the same type as scores")
    count = dets.size(0)
    if count == 0:
        return scores.new_empty(0, dtype=torch.int64)
    order = torch.sort(scores, stable=True, descending=True)[1]
    boxes = dets.index_select(0, order)
    if boxes.dtype in (torch.half, torch.bfloat16):
        boxes = boxes.float()
    # Row i, column j: box i is better than box j and overlaps it. Blocks bound the [rows, count, 2] temporaries.
    suppresses = torch.cat([_overlaps(block, boxes, iou_threshold) for block in boxes.split(1024)]).float().triu_(1)
    kept = torch.ones(count, dtype=torch.float32, device=dets.device)
    for _ in range(count):
        again = (torch.mv(suppresses.t(), kept) == 0).to(torch.float32)
        if torch.equal(again, kept):
            break
        kept = again
    return order.index_select(0, kept.nonzero().squeeze(1))


def provide(path: str) -> bool:
    """Defines torchvision's operators if `path` is torchvision's extension library; returns whether it is."""
    global _library
    folder, name = os.path.split(path)
    if os.path.basename(folder) != "torchvision" or not name.startswith("_C."):
        return False
    if _library is None:
        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl("_cuda_version", lambda: -1, "CompositeExplicitAutograd")
        if hasattr(torch._C, "_npu_provideTorchvisionOnCpu"):
            torch._C._npu_provideTorchvisionOnCpu()
        else:
            library.impl("nms", _nms, "CPU")
        _library = library
    return True
