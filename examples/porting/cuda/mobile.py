# Nets for phones: depthwise convolutions (MobileNet, MNASNet), channel shuffle (ShuffleNet), fire modules (SqueezeNet).
# ruff: noqa: SIM210, UP031 (the spelling is what this script shows)
# ruff: isort: skip_file
"""Small classification nets; hidden choices such as Tensor = torch.cuda.FloatTensor."""

import torch
import torch.nn as nn

import data


class Depthwise(nn.Module):
    """Inverted residual of MobileNetV2 and MNASNet (expand > 1), the plain pair of MobileNetV1 (expand = 1)."""

    def __init__(self, inputs, outputs, stride, expand):
        super().__init__()
        inner = inputs * expand
        layers = []
        if expand > 1:
            layers += [nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(inplace=True)]
        layers += [
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(inplace=True),
        ]
        layers += [nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.residual else self.body(x)


class Shuffle(nn.Module):
    def __init__(self, channels):
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False), nn.BatchNorm2d(half),
        )  # fmt: skip

    def forward(self, x):
        a, b = x.chunk(2, 1)
        x = torch.cat([a, self.body(b)], 1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class Fire(nn.Module):
    def __init__(self, inputs, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.one, self.three = nn.Conv2d(squeeze, expand, 1), nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)


def build(arch, classes):
    stem = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    body = {
        "mobilenetv1": [Depthwise(16, 32, 2, 1), Depthwise(32, 32, 1, 1)],
        "mobilenetv2": [Depthwise(16, 16, 1, 4), Depthwise(16, 32, 2, 4), Depthwise(32, 32, 1, 4)],
        "mnasnet": [Depthwise(16, 16, 1, 3), Depthwise(16, 32, 2, 6)],
        "shufflenetv2": [nn.Conv2d(16, 32, 1), Shuffle(32), Shuffle(32)],
        "squeezenet": [Fire(16, 8, 16), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(32, 8, 16)],
    }[arch]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--arch", default="mobilenetv2")
    parser.add_argument("--use_gpu", default="yes", choices=["yes", "no"])
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    cuda = True if torch.cuda.is_available() and args.use_gpu == "yes" else False
    Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
    net = build(args.arch, 4)
    if cuda:
        net.cuda()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=args.lr / 10, momentum=0.9)
    losses = []
    for step, (x, y) in enumerate(
        data.loader(*data.images(args.steps * args.batch_size, 32, 4), batch_size=args.batch_size)
    ):
        x = x.type(Tensor)
        y = y.cuda() if x.is_cuda else y
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print("step %d loss %.5f" % (step, losses[-1]))
    return losses


if __name__ == "__main__":
    main()
