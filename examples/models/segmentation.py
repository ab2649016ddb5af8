"""Segmentation of pictures: FCN, U-Nets, DeepLabV3+, PSPNet, Fast-SCNN, RefineNet.

Generated pictures of coloured rectangles; every pixel's class is learned. Measured by mean intersection over union.
"""

from collections.abc import Callable

import segmentation_nets as own
import torch.nn.functional as F
from blocks import damp_residuals
from generated import region_images
from harness import Batch, Task, main
from losses import dice_loss, mean_iou
from torchvision import models

import torch
from torch import Tensor, nn

CLASSES = 5


class Segmentation(Task):
    """Cross entropy of each pixel; where a network gives several maps the last is its own and others count less."""

    def __init__(
        self,
        network: Callable[[int], nn.Module],
        size: int = 64,
        auxiliary: float = 0.4,
        dice: float = 0.0,
        rate: float = 0.01,
    ):
        self.model, self.size, self.auxiliary, self.dice, self.rate = network(CLASSES), size, auxiliary, dice, rate

    def batch(self, generator: torch.Generator) -> Batch:
        return region_images(self.batch_size, self.size, CLASSES, generator)

    def scores(self, model: nn.Module, images: Tensor) -> list[Tensor]:
        result = model(images)
        if isinstance(result, dict):  # torchvision's networks
            return [result[key] for key in ("aux", "out") if key in result]
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        *others, scores = self.scores(model, images)
        total = F.cross_entropy(scores, labels) + sum(self.auxiliary * F.cross_entropy(o, labels) for o in others)
        if self.dice:
            foreground = (labels > 0).float()
            total = total + self.dice * dice_loss(1 - scores.softmax(1)[:, 0], foreground)
        return total

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        scores = self.scores(model, batch[0])[-1]
        return {"mean IoU": mean_iou(scores, batch[1])}


def fcn(classes: int) -> nn.Module:
    network = models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=classes, aux_loss=True)
    return damp_residuals(network)


NETWORKS: dict[str, Callable[[], Task]] = {
    "fcn": lambda: Segmentation(fcn),
    "fcn8s": lambda: Segmentation(own.FCN8s, rate=0.001),
    "unet": lambda: Segmentation(own.UNet, dice=1.0),
    "nested_unet": lambda: Segmentation(own.NestedUNet, auxiliary=1.0, dice=1.0),
    "deeplabv3plus": lambda: Segmentation(own.DeepLabV3Plus, size=96),
    "pspnet": lambda: Segmentation(own.PSPNet),
    "fast_scnn": lambda: Segmentation(own.FastSCNN, size=128, rate=0.002),
    "refinenet": lambda: Segmentation(own.RefineNet),
}

if __name__ == "__main__":
    main(NETWORKS, __doc__)
