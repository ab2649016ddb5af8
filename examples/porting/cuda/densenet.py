# DenseNet: concatenated features, transitions with average pooling.
# ruff: isort: skip_file
"""Image classification with a device object chosen once, as many research repositories do it."""

import torch
from torch import nn, optim

import data


class Layer(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, growth, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.cat([x, self.conv(torch.relu(self.norm(x)))], 1)


class DenseNet(nn.Module):
    def __init__(self, blocks=(3, 3), growth=8, classes=4):
        super().__init__()
        channels = 16
        layers = [nn.Conv2d(3, channels, 3, 2, 1, bias=False)]
        for i, count in enumerate(blocks):
            for _ in range(count):
                layers.append(Layer(channels, growth))
                channels += growth
            if i + 1 < len(blocks):
                layers += [
                    nn.BatchNorm2d(channels),
                    nn.ReLU(),
                    nn.Conv2d(channels, channels // 2, 1, bias=False),
                    nn.AvgPool2d(2),
                ]
                channels //= 2
        self.features = nn.Sequential(
            *layers, nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x):
        return self.classifier(self.features(x))


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    device = torch.device(args.device if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        print("training on", torch.cuda.get_device_name(device))
    model = DenseNet().to(device)
    optimizer = optim.Adam(model.parameters(), lr=args.lr / 10)
    losses = []
    for step, (x, y) in enumerate(
        data.loader(*data.images(args.steps * args.batch_size, 32, 4), batch_size=args.batch_size)
    ):
        x, y = x.to(device), y.to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
