"""Classifiers of pictures: ResNets, DenseNets, VGGs, Inceptions, MobileNets and what else the documents list.

Generated pictures of ten classes; the networks are torchvision's where it has them, else of classification_nets.
"""

from collections.abc import Callable

import classification_nets as own
import torch.nn.functional as F
from blocks import damp_residuals
from generated import class_images
from harness import Batch, Task, main
from losses import accuracy
from torchvision import models

import torch
from torch import Tensor, nn

CLASSES = 10


class Classification(Task):
    """Cross entropy of one label for a picture; auxiliary classifiers count three tenths, as in GoogLeNet."""

    longest_gradient = 1.0
    warmup = 10

    def __init__(self, model: nn.Module, size: int = 64, rate: float = 0.005, batch_size: int = 4):
        self.model, self.size, self.rate, self.batch_size = model, size, rate, batch_size

    def batch(self, generator: torch.Generator) -> Batch:
        return class_images(self.batch_size, self.size, CLASSES, generator)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        scores = model(images)
        if isinstance(scores, Tensor):
            return F.cross_entropy(scores, labels)
        main_scores, *others = (part for part in scores if part is not None)
        return F.cross_entropy(main_scores, labels) + sum(0.3 * F.cross_entropy(other, labels) for other in others)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return {"accuracy": accuracy(model(batch[0]), batch[1])}


def torchvision_network(name: str, **settings) -> Callable[[], Task]:
    """A task with a torchvision network; ``settings`` go to the network, but for size, rate and batch_size."""
    task = {key: settings.pop(key) for key in ("size", "rate", "batch_size") if key in settings}

    def make() -> Task:
        network = getattr(models, name)(weights=None, num_classes=CLASSES, **settings)
        return Classification(damp_residuals(network), **task)

    return make


def own_network(network: Callable[[int], nn.Module], **task) -> Callable[[], Task]:
    return lambda: Classification(network(CLASSES), **task)


def densenet191(classes: int) -> nn.Module:
    """A DenseNet of 191 layers: the release notes list one, but no blocks of it are published, so these are ours."""
    return models.DenseNet(32, (6, 12, 43, 32), 64, num_classes=classes)


NETWORKS: dict[str, Callable[[], Task]] = {
    **{f"resnet{depth}": torchvision_network(f"resnet{depth}") for depth in (18, 34, 50)},
    **{f"resnet{depth}": torchvision_network(f"resnet{depth}", rate=0.001) for depth in (101, 152)},
    "resnext50_32x4d": torchvision_network("resnext50_32x4d"),
    "resnext101_32x8d": torchvision_network("resnext101_32x8d", rate=0.001),
    "wide_resnet50_2": torchvision_network("wide_resnet50_2"),
    "wide_resnet101_2": torchvision_network("wide_resnet101_2", rate=0.001),
    "genet": own_network(own.genet),
    **{f"densenet{depth}": torchvision_network(f"densenet{depth}", rate=0.001) for depth in (121, 161, 169, 201)},
    "densenet191": own_network(densenet191, rate=0.001),
    "alexnet": torchvision_network("alexnet"),
    **{
        f"vgg{depth}{norm}": torchvision_network(f"vgg{depth}{norm}", size=32)
        for depth in (11, 13, 16, 19)
        for norm in ("", "_bn")
    },
    "squeezenet1_0": torchvision_network("squeezenet1_0"),
    "squeezenet1_1": torchvision_network("squeezenet1_1"),
    "googlenet": torchvision_network("googlenet", aux_logits=True, init_weights=False, rate=0.001),
    "inception_v2": own_network(own.InceptionV2, rate=0.001),
    "inception_v4": own_network(own.InceptionV4, size=112, rate=0.001),
    "mobilenet_v1": own_network(own.MobileNetV1, rate=0.001),
    "mobilenet_v2": torchvision_network("mobilenet_v2"),
    **{
        f"mnasnet{width}": torchvision_network(f"mnasnet{width}", rate=0.001) for width in ("0_5", "0_75", "1_0", "1_3")
    },
    "shufflenet_v2": torchvision_network("shufflenet_v2_x1_0"),
    "regnet_x": torchvision_network("regnet_x_400mf"),
    "regnet_y": torchvision_network("regnet_y_400mf"),
    "vovnet39": own_network(own.VoVNet39, rate=0.001),
    "pnasnet": own_network(own.PNASNet, rate=0.001),
    "vit_b_16": torchvision_network("vit_b_16", image_size=64),
}

if __name__ == "__main__":
    main(NETWORKS, __doc__)
