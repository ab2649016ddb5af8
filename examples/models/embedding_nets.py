"""Networks that turn a person's picture into features: re-identification, attributes, gait."""

import copy

import torch.nn.functional as F
from blocks import ConvNorm, damp, resnet_stages

import torch
from torch import Tensor, nn


class Features(nn.Module):
    """ResNet-50's last features with the stride of its last stage taken away: (batch, 2048, H / 16, W / 16)."""

    def __init__(self):
        super().__init__()
        self.stages = resnet_stages("resnet50", last_stride=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.stages(x)[-1]


class DeepMAR(nn.Module):
    """Attributes of a pedestrian, each a logit of its own, from ResNet-50's averaged features."""

    def __init__(self, attributes: int):
        super().__init__()
        self.stages = resnet_stages("resnet50")
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(2048, attributes))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x)[-1].mean((2, 3)))


class PCB(nn.Module):
    """The part-based convolutional baseline with uniform parts: six stripes, each with a classifier of its own.

    Gives (features (batch, parts * 256), a list of scores, one for each part).
    """

    def __init__(self, identities: int, parts: int = 6):
        super().__init__()
        self.features, self.parts = Features(), parts
        self.narrow = ConvNorm(2048, 256, 1)
        self.heads = nn.ModuleList(nn.Linear(256, identities) for _ in range(parts))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        stripes = self.narrow(F.adaptive_avg_pool2d(self.features(x), (self.parts, 1))).squeeze(3)
        return stripes.flatten(1), [head(stripes[:, :, part]) for part, head in enumerate(self.heads)]


class LightConv(nn.Sequential):
    """Pointwise, then depthwise: OSNet's cheap 3 x 3 convolution."""

    def __init__(self, width: int):
        super().__init__(
            nn.Conv2d(width, width, 1, bias=False),
            nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        for convolution in (self[0], self[1]):
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")


class OmniScale(nn.Module):
    """Four streams that see 3, 5, 7 and 9 pixels, summed with weights that one shared gate finds for each of them."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        width = outputs // 4
        self.enter = ConvNorm(inputs, width, 1)
        self.streams = nn.ModuleList(nn.Sequential(*(LightConv(width) for _ in range(n))) for n in (1, 2, 3, 4))
        narrow = max(width // 16, 4)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, narrow, 1), nn.ReLU(), nn.Conv2d(narrow, width, 1), nn.Sigmoid()
        )
        self.leave = ConvNorm(width, outputs, 1, activation=None)
        damp(self.leave)
        self.skip = nn.Identity() if inputs == outputs else ConvNorm(inputs, outputs, 1, activation=None)

    def forward(self, x: Tensor) -> Tensor:
        entered = self.enter(x)
        streams = [stream(entered) for stream in self.streams]
        mixed = sum(self.gate(stream) * stream for stream in streams)
        return F.relu(self.leave(mixed) + self.skip(x))


class OSNet(nn.Module):
    """Three stages of two omni-scale blocks. Gives (features (batch, 256), scores)."""

    def __init__(self, identities: int, widths: tuple[int, ...] = (32, 128, 192, 256)):
        super().__init__()
        layers: list[nn.Module] = [ConvNorm(3, widths[0], 7, 2), nn.MaxPool2d(3, 2, 1)]
        for inputs, outputs in zip(widths, widths[1:], strict=False):
            layers += [OmniScale(inputs, outputs), OmniScale(outputs, outputs)]
            if outputs != widths[-1]:
                layers += [ConvNorm(outputs, outputs, 1), nn.AvgPool2d(2)]
        self.body = nn.Sequential(*layers, ConvNorm(widths[-1], widths[-1], 1))
        self.embed = nn.Sequential(nn.Linear(widths[-1], 256), nn.BatchNorm1d(256), nn.ReLU())
        self.head = nn.Linear(256, identities)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.embed(self.body(x).mean((2, 3)))
        return features, self.head(features)


class StrongBaseline(nn.Module):
    """ResNet-50 with a normalising neck: triplets before it, identities after it, and a centre for each identity.

    Gives (features before the neck (batch, 2048), after it, scores).
    """

    def __init__(self, identities: int):
        super().__init__()
        self.features = Features()
        self.neck = nn.BatchNorm1d(2048)
        self.neck.bias.requires_grad_(False)
        self.head = nn.Linear(2048, identities, bias=False)
        self.centres = nn.Parameter(0.1 * torch.randn(identities, 2048))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = self.features(x).mean((2, 3))
        after = self.neck(before)
        return before, after, self.head(after)


class MGN(nn.Module):
    """Multiple granularities: three copies of the last stage look at the whole, at halves and at thirds.

    Gives (features (batch, 8 * 256), the three whole ones for triplets, a list of scores).
    """

    def __init__(self, identities: int):
        super().__init__()
        *shared, last = resnet_stages("resnet50").stages
        fine = resnet_stages("resnet50", last_stride=1).stages[3]
        fine.load_state_dict(last.state_dict())
        self.shared = nn.Sequential(*shared)
        self.branches = nn.ModuleList([last, fine, copy.deepcopy(fine)])
        self.narrow = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2048, 256, 1), nn.BatchNorm2d(256), nn.ReLU()) for _ in range(8)
        )
        self.heads = nn.ModuleList(nn.Linear(256, identities) for _ in range(8))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        x = self.shared(x)
        pooled: list[Tensor] = []
        whole: list[int] = []
        for parts, branch in enumerate(self.branches, 1):
            features = branch(x)
            whole.append(len(pooled))
            pooled.append(F.adaptive_max_pool2d(features, 1))
            if parts > 1:
                pooled += F.adaptive_max_pool2d(features, (parts, 1)).split(1, 2)
        narrow = [layer(part).flatten(1) for layer, part in zip(self.narrow, pooled, strict=True)]
        scores = [head(part) for head, part in zip(self.heads, narrow, strict=True)]
        return torch.cat(narrow, 1), [narrow[place] for place in whole], scores


class AlignedReID(nn.Module):
    """A global feature, and one for each stripe whose alignment is found by a shortest path.

    Gives (global (batch, 2048), local (batch, stripes, 128), scores).
    """

    def __init__(self, identities: int):
        super().__init__()
        self.features = Features()
        self.local = nn.Sequential(nn.BatchNorm2d(2048), nn.ReLU(), nn.Conv2d(2048, 128, 1))
        self.head = nn.Linear(2048, identities)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.features(x)
        whole = x.mean((2, 3))
        local = F.normalize(self.local(F.adaptive_max_pool2d(x, (x.shape[2], 1))).squeeze(3), dim=1)
        return whole, local.transpose(1, 2), self.head(whole)


def shortest_paths(local: Tensor) -> Tensor:
    """Distances of all pairs by the cheapest monotone path through their stripes: (n, stripes, c) -> (n, n)."""
    products = torch.einsum("ahc,bwc->abhw", local, local)
    steps = ((2 - 2 * products).clamp(min=1e-6).sqrt() / 2).tanh()
    height, width = steps.shape[2:]
    row: list[Tensor] = []
    for i in range(height):
        previous, row = row, []
        for j in range(width):
            ways = ([previous[j]] if i else []) + ([row[j - 1]] if j else [])
            best = torch.minimum(*ways) if len(ways) == 2 else (ways[0] if ways else 0)
            row.append(best + steps[:, :, i, j])
    return row[-1]


class GaitSet(nn.Module):
    """A walk as a set of silhouettes: features of frames, pooled over the set, and over horizontal strips of it.

    Silhouettes (batch, frames, 64, 44) -> (batch, strips, 64).
    """

    bins = (1, 2, 4, 8, 16)

    def __init__(self, width: int = 16):
        super().__init__()

        def pair(inputs: int, outputs: int, kernel: int = 3) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
                nn.LeakyReLU(0.01),
                nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
                nn.LeakyReLU(0.01),
            )

        w = width
        self.frames = nn.ModuleList([pair(1, w, 5), pair(w, 2 * w), pair(2 * w, 4 * w)])
        self.sets = nn.ModuleList([pair(w, 2 * w), pair(2 * w, 4 * w)])
        self.project = nn.Parameter(torch.empty(2 * sum(self.bins), 4 * w, 64))
        nn.init.xavier_uniform_(self.project)

    @staticmethod
    def pool_set(x: Tensor, batch: int) -> Tensor:
        return x.unflatten(0, (batch, -1)).amax(1)

    def forward(self, silhouettes: Tensor) -> Tensor:
        batch = len(silhouettes)
        x = F.max_pool2d(self.frames[0](silhouettes.flatten(0, 1).unsqueeze(1)), 2)
        whole = F.max_pool2d(self.sets[0](self.pool_set(x, batch)), 2)
        x = F.max_pool2d(self.frames[1](x), 2)
        whole = self.sets[1](whole + self.pool_set(x, batch))
        pooled = self.pool_set(self.frames[2](x), batch)
        strips = []
        for features in (pooled, pooled + whole):
            for count in self.bins:
                strip = features.flatten(2).unflatten(2, (count, -1))
                strips.append(strip.mean(3) + strip.amax(3))
        return torch.einsum("bcs,sco->bso", torch.cat(strips, 2), self.project)
