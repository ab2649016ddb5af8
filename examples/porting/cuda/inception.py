# GoogLeNet and the Inceptions: parallel branches, average pooling with padding, an auxiliary head.
# ruff: noqa: UP032 (the spelling is what this script shows)
# ruff: isort: skip_file
"""Image classification with an auxiliary loss and device strings made by format."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import data


def conv(inputs, outputs, kernel, **kwargs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, bias=False, **kwargs),
        nn.BatchNorm2d(outputs, eps=0.001),
        nn.ReLU(inplace=True),
    )


class Inception(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.one = conv(inputs, 8, 1)
        self.three = nn.Sequential(conv(inputs, 8, 1), conv(8, 16, 3, padding=1))
        self.seven = nn.Sequential(
            conv(inputs, 8, 1), conv(8, 8, (1, 7), padding=(0, 3)), conv(8, 8, (7, 1), padding=(3, 0))
        )
        self.pool = conv(inputs, 8, 1)

    def forward(self, x):
        pooled = F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
        return torch.cat([self.one(x), self.three(x), self.seven(x), self.pool(pooled)], 1)


class GoogLeNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = conv(3, 16, 3, stride=2, padding=1)
        self.a, self.b = Inception(16), Inception(40)
        self.aux = nn.Linear(40, classes)
        self.fc = nn.Linear(40, classes)

    def forward(self, x):
        x = self.a(self.stem(x))
        aux = self.aux(F.adaptive_avg_pool2d(x, 1).flatten(1))
        x = self.b(F.max_pool2d(x, 3, 2, 1))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1)), aux


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--gpu-id", type=int, default=0, help="-1 trains on the CPU")
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    loc = "cuda:{}".format(args.gpu_id) if args.gpu_id >= 0 and torch.cuda.is_available() else "cpu"
    model = GoogLeNet().to(loc)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    losses = []
    for step, (x, y) in enumerate(
        data.loader(*data.images(args.steps * args.batch_size, 32, 4), batch_size=args.batch_size)
    ):
        x, y = x.to(loc, non_blocking=True), y.to(loc, non_blocking=True)
        output, aux = model(x)
        loss = F.cross_entropy(output, y) + 0.4 * F.cross_entropy(aux, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f} on {loc}")
    return losses


if __name__ == "__main__":
    main()
