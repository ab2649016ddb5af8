"""Networks that generate: VAE+GAN, FD-GAN, RecVAE."""

import copy
import math

import torch.nn.functional as F
from blocks import resnet_stages

import torch
from torch import Tensor, nn


def gaussian_log(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Logarithm of the normal density at x."""
    return -0.5 * (math.log(2 * math.pi) + log_variance + (x - mean).square() / log_variance.exp())


def grow(inputs: int, outputs: int) -> nn.Sequential:
    """Twice the height and width."""
    return nn.Sequential(
        nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)
    )


def shrink(inputs: int, outputs: int, norm: bool = True) -> nn.Sequential:
    """Half the height and width."""
    layers = [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=not norm)]
    return nn.Sequential(*layers, *([nn.BatchNorm2d(outputs)] if norm else []), nn.LeakyReLU(0.2))


class VAEGAN(nn.Module):
    """A variational autoencoder whose decoder is also a GAN's generator; likeness is measured in the critic's features.

    Pictures (batch, 3, 32, 32) in -1..1.
    """

    latent = 64

    def __init__(self, width: int = 32):
        super().__init__()
        w = width
        self.encoder = nn.Sequential(shrink(3, w), shrink(w, 2 * w), shrink(2 * w, 4 * w), nn.Flatten())
        self.encoder.append(nn.Linear(4 * w * 16, 2 * self.latent))
        self.decoder = nn.Sequential(
            nn.Linear(self.latent, 4 * w * 16),
            nn.Unflatten(1, (4 * w, 4, 4)),
            grow(4 * w, 2 * w),
            grow(2 * w, w),
            grow(w, w),
            nn.Conv2d(w, 3, 3, padding=1),
            nn.Tanh(),
        )
        self.critic = nn.Sequential(shrink(3, w, norm=False), shrink(w, 2 * w), shrink(2 * w, 4 * w))
        self.verdict = nn.Linear(4 * w * 16, 1)

    def encode(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A code drawn with ``noise`` (batch, latent), and the mean and log variance it was drawn with."""
        mean, log_variance = self.encoder(x).float().chunk(2, 1)
        return mean + noise * (0.5 * log_variance).exp(), mean, log_variance

    def judge(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The critic's features, and its logits (batch, 1)."""
        features = self.critic(x)
        return features, self.verdict(features.flatten(1))


class FDGAN(nn.Module):
    """Feature-distilling GAN: persons drawn in another pose, so that features forget the pose.

    Pictures (batch, 3, 64, 32) in -1..1, poses as maps of 18 joints (batch, 18, 64, 32). ResNet-18 stands for the
    published ResNet-50.
    """

    joints, noise = 18, 32

    def __init__(self, width: int = 32):
        super().__init__()
        w = width
        self.stages = resnet_stages("resnet18")  # what is wanted in the end: features without pose
        self.verify = nn.Linear(512, 2)
        self.pose = nn.ModuleList([shrink(self.joints, w, norm=False), shrink(w, 2 * w), shrink(2 * w, 4 * w)])
        self.start = nn.Sequential(
            nn.Linear(512 + self.noise, 4 * w * 32), nn.Unflatten(1, (4 * w, 8, 4)), nn.BatchNorm2d(4 * w), nn.ReLU()
        )
        self.draw = nn.ModuleList([grow(8 * w, 2 * w), grow(4 * w, w), grow(2 * w, w)])
        self.last = nn.Sequential(nn.Conv2d(w, 3, 3, padding=1), nn.Tanh())
        self.identity = resnet_stages("resnet18")
        self.same = nn.Linear(512, 1)
        self.patches = nn.Sequential(
            shrink(3 + self.joints, w, norm=False),
            shrink(w, 2 * w),
            shrink(2 * w, 4 * w),
            nn.Conv2d(4 * w, 1, 3, padding=1),
        )

    def features(self, x: Tensor) -> Tensor:
        return self.stages(x)[-1].mean((2, 3))

    def generate(self, features: Tensor, pose: Tensor, noise: Tensor) -> Tensor:
        """A picture of the person with these features (batch, 512) in this pose."""
        levels = []
        for layer in self.pose:
            pose = layer(pose)
            levels.append(pose)
        x = self.start(torch.cat([features, noise], 1))
        for layer, level in zip(self.draw, reversed(levels), strict=True):
            x = layer(torch.cat([x, level], 1))
        return self.last(x)

    def judge_identity(self, a: Tensor, b: Tensor) -> Tensor:
        """Logits (batch, 1): do both pictures show one person?"""
        first, second = (self.identity(x)[-1].mean((2, 3)) for x in (a, b))
        return self.same((first - second).square())

    def judge_pose(self, x: Tensor, pose: Tensor) -> Tensor:
        """Logits for each patch: is the picture real, and in this pose?"""
        return self.patches(torch.cat([x, pose], 1))


class DenseEncoder(nn.Module):
    """RecVAE's encoder: five layers, each fed by the sum of all before it, with swish and normalisation."""

    def __init__(self, items: int, hidden: int, latent: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(items if place == 0 else hidden, hidden) for place in range(5))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden, eps=0.1) for _ in range(5))
        self.mean, self.log_variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)

    def forward(self, ratings: Tensor, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """``kept`` (batch, items) is which ratings a denoising encoder sees."""
        x = F.normalize(ratings, dim=1)
        x = x if kept is None else x * kept * 2
        total = torch.zeros((), device=x.device)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(F.silu(layer(x) + total))
            total = total + x
        return self.mean(x), self.log_variance(x)


class RecVAE(nn.Module):
    """Recommendation by a variational autoencoder with a composite prior; its encoder and decoder learn in turns.

    The prior mixes a standard normal, what the encoder said some steps ago, and a wide normal.
    """

    def __init__(self, items: int, hidden: int = 128, latent: int = 48):
        super().__init__()
        self.encoder = DenseEncoder(items, hidden, latent)
        self.decoder = nn.Linear(latent, items)
        self.old = copy.deepcopy(self.encoder).requires_grad_(False)
        self.uses = 0

    def remember(self, every: int) -> None:
        """Let the prior's encoder become today's one, once in ``every`` calls."""
        if self.uses % every == 0:
            self.old.load_state_dict(self.encoder.state_dict())
        self.uses += 1

    def prior(self, ratings: Tensor, code: Tensor) -> Tensor:
        """Logarithm of the prior's density of each number of the code."""
        zero = torch.zeros_like(code)
        with torch.no_grad():
            mean, log_variance = self.old(ratings)
        parts = [
            gaussian_log(code, zero, zero) + math.log(3 / 20),
            gaussian_log(code, mean, log_variance) + math.log(3 / 4),
            gaussian_log(code, zero, zero + 10) + math.log(1 / 10),
        ]
        return torch.stack(parts, -1).logsumexp(-1)

    def forward(self, ratings: Tensor, noise: Tensor, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores of all items (batch, items), and the divergence from the prior (batch)."""
        mean, log_variance = self.encoder(ratings, kept)
        code = mean + noise * (0.5 * log_variance).exp()
        divergence = (gaussian_log(code, mean, log_variance) - self.prior(ratings, code)).sum(1)
        return self.decoder(code), divergence
