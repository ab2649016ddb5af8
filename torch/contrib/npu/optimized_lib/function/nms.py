"""Non-maximum suppression of several classes."""

import torch


def npu_batched_multiclass_nms(
    multi_bboxes, multi_scores, score_thr=0.05, nms_thr=0.45, max_num=50, score_factors=None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Suppress, in each image and class, boxes that overlap a better one; return the best of each image.

    Args:
        multi_bboxes: of shape (images, n, classes, 4), or (images, n, 4) for all classes alike, on an NPU.
        multi_scores: of shape (images, n, classes + 1); the last column, the background's, is not looked at.
        score_thr: boxes need a higher score.
        nms_thr: boxes that overlap a better one by more are suppressed.
        max_num: the boxes that are returned; zeros where there are fewer.
        score_factors: of shape (images, n), multiplied with the scores before.

    Returns:
        Boxes with their scores, (images, max_num, 5), and their classes from 0, (images, max_num).
    """
    scores = multi_scores[..., :-1]
    if score_factors is not None:
        scores = scores * score_factors[..., None]
    boxes = multi_bboxes.reshape(*scores.shape[:2], -1, 4)
    found, confidence, classes, _ = torch.npu_batch_nms(boxes, scores, score_thr, nms_thr, max_num, max_num)
    return torch.cat([found, confidence[..., None]], -1), classes


def npu_multiclass_nms(
    multi_bboxes, multi_scores, score_thr=0.05, nms_thr=0.45, max_num=50, score_factors=None
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`npu_batched_multiclass_nms` of one image: all shapes without the first dimension."""
    factors = None if score_factors is None else score_factors[None]
    found, classes = npu_batched_multiclass_nms(
        multi_bboxes[None], multi_scores[None], score_thr, nms_thr, max_num, factors
    )
    return found[0], classes[0]
