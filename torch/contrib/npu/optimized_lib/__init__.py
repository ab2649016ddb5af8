r"""The affinity library: parts of common models in the form that suits an NPU; most run on any device.

``function`` and ``module`` have what ``torch_npu.contrib`` has (that is this library under another name), and all of it
is here, too. docs/affinity.md says for each name what its plain form is and what was measured.
"""

from . import function as function, module as module
from .boxes import fast_rcnn_inference_single_image, pairwise_iou
from .function import *  # noqa: F403
from .module import *  # noqa: F403
from .preloader import PreLoader

__all__ = [
    "PreLoader",
    "fast_rcnn_inference_single_image",
    "pairwise_iou",
    *function.__all__,
    *module.__all__,
]
