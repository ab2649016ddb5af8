"""People told apart: DeepMAR, PCB, OSNet, the strong baseline, MGN, AlignedReID, GaitSet.

Generated persons whose clothes (or way of walking) are their identity, several pictures of each in a batch. Measured by
how often the nearest other picture is of the same person.
"""

import math
from collections.abc import Callable

import embedding_nets as own
import torch.nn.functional as F
from harness import Batch, Task, main
from losses import all_triplets, hardest_triplets, pairwise_distances, rank_one, smoothed_cross_entropy

import torch
from torch import Generator, Tensor, nn

IDENTITIES = 16
ATTRIBUTES = 35


def clothes() -> Tensor:
    """A colour for each of six stripes of each identity: (identities, 3, 6)."""
    return torch.rand(IDENTITIES, 3, 6, generator=Generator().manual_seed(99)) * 2 - 1


class Person(Task):
    """Pictures of persons, ``each`` of every identity in a batch; subclasses say what the network learns from them."""

    batch_size = 8
    each = 2
    rate = 0.005
    warmup = 20

    def __init__(self, model: nn.Module, height: int = 64, width: int = 32):
        self.model, self.height, self.width = model, height, width
        self.clothes = clothes()

    def identities(self, generator: Generator) -> Tensor:
        order = torch.randperm(IDENTITIES, generator=generator)
        return order[(torch.arange(self.batch_size) // self.each) % IDENTITIES]

    def batch(self, generator: Generator) -> Batch:
        labels = self.identities(generator)
        stripes = F.interpolate(self.clothes[labels], size=self.height, mode="linear", align_corners=False)
        images = stripes[..., None].expand(-1, -1, -1, self.width)
        light = 0.6 + 0.8 * torch.rand(len(labels), 1, 1, 1, generator=generator)
        return images * light + 0.3 * torch.randn(images.shape, generator=generator), labels

    def features(self, model: nn.Module, images: Tensor) -> Tensor:
        return model(images)[0]

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        features = F.normalize(self.features(model, batch[0]).flatten(1), dim=1)
        return {"rank 1": rank_one(features, batch[1])}


class Attributes(Person):
    """DeepMAR: a weighted sigmoid cross entropy, in which rare attributes weigh more."""

    def __init__(self):
        super().__init__(own.DeepMAR(ATTRIBUTES))
        generator = Generator().manual_seed(7)
        share = 0.1 + 0.6 * torch.rand(ATTRIBUTES, generator=generator)
        self.attributes = (torch.rand(IDENTITIES, ATTRIBUTES, generator=generator) < share).float()

    def batch(self, generator: Generator) -> Batch:
        images, labels = super().batch(generator)
        return images, self.attributes[labels]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, truth = batch
        share = self.attributes.mean(0).to(images.device)
        weight = torch.where(truth > 0, (1 - share).exp(), share.exp())
        return F.binary_cross_entropy_with_logits(model(images), truth, weight)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        images, truth = batch
        right = ((model(images) > 0) == (truth > 0)).float().mean()
        return {"accuracy": right}


class Parts(Person):
    """PCB: the identity from each stripe by itself."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return sum(F.cross_entropy(scores, batch[1]) for scores in model(batch[0])[1])


class Identity(Person):
    """OSNet: the identity with smoothed labels."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return smoothed_cross_entropy(model(batch[0])[1], batch[1])


class Strong(Person):
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        before, _, scores = model(images)
        before = before.float()
        centre = (before - model.centres[labels]).square().sum(1).mean()
        triplets = hardest_triplets(pairwise_distances(before, before), labels)
        return smoothed_cross_entropy(scores, labels) + triplets + 0.0005 * centre

    def features(self, model: nn.Module, images: Tensor) -> Tensor:
        return model(images)[1]


class Granularities(Person):
    """MGN: triplets of the whole features, identities from all."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        _, whole, scores = model(images)
        triplets = sum(hardest_triplets(pairwise_distances(w.float(), w.float()), labels, 1.2) for w in whole)
        return triplets / 3 + sum(F.cross_entropy(s, labels) for s in scores) / len(scores)


class Aligned(Person):
    """AlignedReID: the same triplet loss on global distances and on those of the best alignment."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        whole, local, scores = model(images)
        whole = F.normalize(whole.float(), dim=1)
        distances = pairwise_distances(whole, whole)
        triplets = hardest_triplets(distances, labels) + hardest_triplets(own.shortest_paths(local.float()), labels)
        return F.cross_entropy(scores, labels) + triplets


class Gait(Person):
    """Silhouettes of walking persons; size and rhythm are the identity."""

    batch_size = 8
    frames = 6

    def __init__(self):
        super().__init__(own.GaitSet(), 64, 44)

    def batch(self, generator: Generator) -> Batch:
        labels = self.identities(generator)
        start = 2 * math.pi * torch.rand(len(labels), 1, generator=generator)
        phase = start + torch.arange(self.frames) * (0.5 + 0.05 * (labels % 4)[:, None])
        y, x = torch.arange(64)[:, None] / 64, torch.arange(44)[None] / 44 - 0.5
        swing = (0.1 + 0.02 * (labels // 4))[:, None, None, None] * phase.sin()[..., None, None]
        legs = (y - 0.5).clamp(min=0) * 2
        body = 0.08 + 0.01 * (labels % 5)[:, None, None, None]
        near = (x - swing * legs).abs().minimum((x + swing * legs).abs())
        silhouettes = (near < body).float() * (y > 0.15)
        noise = torch.rand(silhouettes.shape, generator=generator) < 0.02
        return torch.where(noise, 1 - silhouettes, silhouettes), labels

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        strips = model(batch[0]).float().transpose(0, 1)
        return sum(all_triplets(pairwise_distances(strip, strip), batch[1]) for strip in strips) / len(strips)

    def features(self, model: nn.Module, images: Tensor) -> Tensor:
        return model(images)


NETWORKS: dict[str, Callable[[], Task]] = {
    "deepmar": Attributes,
    "pcb": lambda: Parts(own.PCB(IDENTITIES), 96),
    "osnet": lambda: Identity(own.OSNet(IDENTITIES)),
    "strong_baseline": lambda: Strong(own.StrongBaseline(IDENTITIES)),
    "mgn": lambda: Granularities(own.MGN(IDENTITIES), 96),
    "aligned_reid": lambda: Aligned(own.AlignedReID(IDENTITIES), 128),
    "gaitset": Gait,
}

if __name__ == "__main__":
    main(NETWORKS, __doc__)
