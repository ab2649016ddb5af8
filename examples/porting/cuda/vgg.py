# AlexNet and VGG, with and without batch norm; the multi-label head stands for DeepMar's pedestrian attributes.
# ruff: isort: skip_file
"""Plain convolutional nets; timing with CUDA events, as in benchmark scripts."""

import torch
import torch.cuda as tc
import torch.nn as nn

import data

CONFIGS = {
    "alexnet": [16, "M", 32, "M"],
    "vgg11": [16, "M", 32, "M", 32, 32, "M"],
    "vgg16": [16, 16, "M", 32, 32, "M", 32, 32, 32, "M"],
}


def make_layers(config, batch_norm):
    layers, inputs = [], 3
    for item in config:
        if item == "M":
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers.append(nn.Conv2d(inputs, item, 3, padding=1))
        if batch_norm:
            layers.append(nn.BatchNorm2d(item))
        layers.append(nn.ReLU(inplace=True))
        inputs = item
    return nn.Sequential(*layers), inputs


class VGG(nn.Module):
    def __init__(self, arch, batch_norm, outputs):
        super().__init__()
        self.features, channels = make_layers(CONFIGS[arch], batch_norm)
        self.pool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(nn.Linear(channels * 4, 64), nn.ReLU(inplace=True), nn.Linear(64, outputs))

    def forward(self, x):
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--arch", default="vgg11", choices=sorted(CONFIGS))
    parser.add_argument("--bn", action="store_true")
    parser.add_argument("--attributes", action="store_true", help="several labels per image (DeepMar)")
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args(argv)
    use_cuda = tc.is_available() and not args.cpu
    torch.manual_seed(args.seed)
    model = VGG(args.arch, args.bn, 4)
    criterion = nn.BCEWithLogitsLoss() if args.attributes else nn.CrossEntropyLoss()
    if use_cuda:
        model, criterion = model.cuda(), criterion.cuda()
        start, end = tc.Event(enable_timing=True), tc.Event(enable_timing=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    images, labels = data.images(args.steps * args.batch_size, 32, 4)
    targets = nn.functional.one_hot(labels, 4).float() if args.attributes else labels
    losses = []
    for step, (x, y) in enumerate(data.loader(images, targets, batch_size=args.batch_size)):
        if use_cuda:
            x, y = x.cuda(), y.cuda()
            start.record()
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        took = ""
        if use_cuda:
            end.record()
            tc.synchronize()
            took = f" {start.elapsed_time(end):.1f} ms"
        print(f"step {step} loss {losses[-1]:.5f}{took}")
    return losses


if __name__ == "__main__":
    main()
