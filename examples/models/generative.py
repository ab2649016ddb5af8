"""Networks that generate: VAE+GAN, FD-GAN, RecVAE, and super-resolution by EDSR, RDN and SRFlow.

Generated pictures, persons and ratings. All noise is part of a batch, so that devices draw the same.
"""

from collections.abc import Callable, Iterable, Sequence

import generative_nets as own
import super_resolution
import torch.nn.functional as F
from embedding import clothes
from generated import smooth_images
from harness import Batch, Phase, Task, main
from losses import accuracy, peak_signal_to_noise

import torch
from torch import Generator, Tensor, nn


def real(logits: Tensor) -> Tensor:
    """What it costs that these are not judged to be real."""
    return F.softplus(-logits.float()).mean()


def fake(logits: Tensor) -> Tensor:
    """What it costs that these are not judged to be false."""
    return F.softplus(logits.float()).mean()


class VAEGANTask(Task):
    """Three phases: the critic learns to judge, the encoder to describe, the decoder to draw."""

    batch_size = 8
    rate = 1e-3

    def __init__(self):
        self.model = own.VAEGAN()

    def batch(self, generator: Generator) -> Batch:
        pictures = smooth_images(self.batch_size, 32, generator) * 2 - 1
        noise = [torch.randn(self.batch_size, own.VAEGAN.latent, generator=generator) for _ in range(2)]
        return pictures, *noise

    def parts(self, model: own.VAEGAN, batch: Batch) -> dict[str, Tensor]:
        pictures, noise, other = batch
        code, mean, log_variance = model.encode(pictures, noise)
        features, logits = model.judge(pictures)
        rebuilt_features, rebuilt = model.judge(model.decoder(code))
        _, invented = model.judge(model.decoder(other))
        return {
            "likeness": (features.detach() - rebuilt_features).float().square().mean(),
            "divergence": -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).mean(),
            "judged": real(logits) + 0.5 * (fake(rebuilt) + fake(invented)),
            "fooled": 0.5 * (real(rebuilt) + real(invented)),
        }

    def judge(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.parts(model, batch)["judged"]

    def describe(self, model: nn.Module, batch: Batch) -> Tensor:
        parts = self.parts(model, batch)
        return parts["likeness"] + parts["divergence"]

    def draw(self, model: nn.Module, batch: Batch) -> Tensor:
        parts = self.parts(model, batch)
        return parts["likeness"] + 0.1 * parts["fooled"]

    def phases(self, model: own.VAEGAN) -> Sequence[Phase]:
        critic = [*model.critic.parameters(), *model.verdict.parameters()]
        return [
            Phase(self.judge, critic),
            Phase(self.describe, model.encoder.parameters()),
            Phase(self.draw, model.decoder.parameters()),
        ]

    def measure(self, model: own.VAEGAN, batch: Batch) -> dict[str, float]:
        _, mean, _ = model.encode(batch[0], batch[1])
        return {"reconstruction error": (model.decoder(mean) - batch[0]).abs().mean()}

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(parameters, lr=3e-4, eps=1e-4)


class FDGANTask(Task):
    """Two persons, at times the same, are drawn in one pose; discriminators judge person and pose."""

    batch_size = 4
    rate = 0.002

    def __init__(self):
        self.model, self.clothes = own.FDGAN(), clothes()

    def person(self, labels: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Pictures of these identities in poses of their own, and the poses' maps."""
        count = len(labels)
        lean = torch.randint(-5, 6, (count,), generator=generator)
        stripes = F.interpolate(self.clothes[labels], size=64, mode="linear", align_corners=False)
        y, x = torch.arange(64)[None, :, None], torch.arange(32)[None, None]
        middle = 16 + lean[:, None, None] * (1 - y / 64)
        body = ((x - middle).abs() < 6).float()[:, None]
        pictures = (stripes[..., None] * body).clamp(-1, 1) + 0.1 * torch.randn(count, 3, 64, 32, generator=generator)
        joint = torch.arange(own.FDGAN.joints)
        jy = (joint // 2) * 7
        jx = 16 + lean[:, None] * (1 - jy / 64) + (joint % 2) * 8 - 4
        square = (y[:, None] - jy[None, :, None, None]).square() + (x[:, None] - jx[..., None, None]).square()
        return pictures.clamp(-1, 1), (-square / 8).exp()

    def batch(self, generator: Generator) -> Batch:
        labels = torch.randint(len(self.clothes), (self.batch_size,), generator=generator)
        same = torch.arange(self.batch_size) % 2  # every second pair is of one person
        others = torch.where(same == 1, labels, (labels + 1) % len(self.clothes))
        first, _ = self.person(labels, generator)
        second, _ = self.person(others, generator)
        target, pose = self.person(labels, generator)
        noise = torch.randn(self.batch_size, own.FDGAN.noise, generator=generator)
        return first, second, target, pose, noise, same

    def judge(self, model: own.FDGAN, batch: Batch) -> Tensor:
        first, second, target, pose, noise, _ = batch
        with torch.no_grad():
            drawn = model.generate(model.features(first), pose, noise)
        identity = real(model.judge_identity(first, target)) + fake(model.judge_identity(first, drawn))
        where = real(model.judge_pose(target, pose)) + fake(model.judge_pose(drawn, pose))
        return 0.5 * (identity + where)

    def draw(self, model: own.FDGAN, batch: Batch) -> Tensor:
        first, second, target, pose, noise, same = batch
        features, others = model.features(first), model.features(second)
        drawn, drawn_other = model.generate(features, pose, noise), model.generate(others, pose, noise)
        verified = F.cross_entropy(model.verify((features - others).square()), same)
        fooled = real(model.judge_identity(first, drawn)) + real(model.judge_pose(drawn, pose))
        alike = ((drawn - drawn_other).abs().mean((1, 2, 3)) * same).sum() / same.sum().clamp(min=1)
        return verified + 0.1 * fooled + 5 * (drawn - target).abs().mean() + alike

    def phases(self, model: own.FDGAN) -> Sequence[Phase]:
        judges = [*model.identity.parameters(), *model.same.parameters(), *model.patches.parameters()]
        known = {id(parameter) for parameter in judges}
        return [Phase(self.judge, judges), Phase(self.draw, [p for p in model.parameters() if id(p) not in known])]

    def measure(self, model: own.FDGAN, batch: Batch) -> dict[str, float]:
        first, second, target, pose, noise, same = batch
        features, others = model.features(first), model.features(second)
        drawn = model.generate(features, pose, noise)
        verified = accuracy(model.verify((features - others).square()), same)
        return {"verification accuracy": verified, "drawing error": (drawn - target).abs().mean()}


class Ratings(Task):
    """RecVAE: who liked what. Tastes come in groups; a part of the ratings is hidden to be recommended."""

    batch_size = 32
    rate = 5e-4
    items, groups = 200, 8

    def __init__(self):
        self.model = own.RecVAE(self.items)

    def batch(self, generator: Generator) -> Batch:
        group = torch.randint(self.groups, (self.batch_size, 1), generator=generator)
        chance = torch.where(torch.arange(self.items) % self.groups == group, 0.6, 0.03)
        ratings = (torch.rand(chance.shape, generator=generator) < chance).float()
        noise = torch.randn(self.batch_size, 48, generator=generator)
        return ratings, noise, (torch.rand(ratings.shape, generator=generator) < 0.5).float()

    def learn(self, model: own.RecVAE, batch: Batch, kept: Tensor | None) -> Tensor:
        ratings, noise, _ = batch
        scores, divergence = model(ratings, noise, kept)
        liked = ratings.sum(1)
        likelihood = (scores.log_softmax(1) * ratings).sum(1)
        return (0.005 * liked * divergence - likelihood).mean() / self.items

    def encoder(self, model: own.RecVAE, batch: Batch) -> Tensor:
        if model.training:
            model.remember(every=5)
        return self.learn(model, batch, batch[2])

    def decoder(self, model: own.RecVAE, batch: Batch) -> Tensor:
        return self.learn(model, batch, None)

    def phases(self, model: own.RecVAE) -> Sequence[Phase]:
        return [Phase(self.encoder, model.encoder.parameters()), Phase(self.decoder, model.decoder.parameters())]

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.rate)

    def measure(self, model: own.RecVAE, batch: Batch) -> dict[str, float]:
        ratings, noise, kept = batch
        seen = ratings * kept
        scores, _ = model(seen, torch.zeros_like(noise))
        hidden = ratings * (1 - kept)
        best = scores.masked_fill(seen > 0, float("-inf")).topk(10, 1)[1]
        hits = hidden.gather(1, best).sum(1) / hidden.sum(1).clamp(1, 10)
        return {"recall at 10": hits.mean()}


class SuperResolution(Task):
    """A picture from one of half the size, by absolute differences."""

    rate = 1e-4
    size = 48

    def __init__(self, model: nn.Module):
        self.model = model

    def batch(self, generator: Generator) -> Batch:
        high = smooth_images(self.batch_size, self.size, generator)
        return (
            F.avg_pool2d(high, 2),
            high,
            torch.randn(self.batch_size, 12, self.size // 2, self.size // 2, generator=generator),
        )

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return (model(batch[0]) - batch[1]).abs().mean()

    def picture(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch[0])

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return {"PSNR": peak_signal_to_noise(self.picture(model, batch), batch[1])}

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.rate)


class Flow(SuperResolution):
    """SRFlow: the likelihood of the high resolution; drawn at a low temperature to be measured."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch[1], batch[0])

    def picture(self, model: nn.Module, batch: Batch) -> Tensor:
        return model.sample(0.1 * batch[2], batch[0])


NETWORKS: dict[str, Callable[[], Task]] = {
    "vae_gan": VAEGANTask,
    "fd_gan": FDGANTask,
    "recvae": Ratings,
    "edsr": lambda: SuperResolution(super_resolution.EDSR()),
    "rdn": lambda: SuperResolution(super_resolution.RDN()),
    "srflow": lambda: Flow(super_resolution.SRFlow()),
}

if __name__ == "__main__":
    main(NETWORKS, __doc__)
