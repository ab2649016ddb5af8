r"""The affinity library: parts of common models in the form that suits an NPU. They run on any device."""

from .boxes import fast_rcnn_inference_single_image, pairwise_iou
from .channel_shuffle import ChannelShuffle
from .preloader import PreLoader

__all__ = ["ChannelShuffle", "PreLoader", "fast_rcnn_inference_single_image", "pairwise_iou"]
