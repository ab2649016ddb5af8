# ResNet and its kin: basic and bottleneck blocks, groups (ResNeXt), width (Wide ResNet), gather-excite gates (GENet).
# ruff: isort: skip_file
"""Image classification in the style of torchvision's references: args.gpu, DataParallel, cudnn.benchmark."""

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F

import data

# name: (bottleneck, blocks, groups, width per group, gather-excite)
ARCHITECTURES = {
    "resnet18": (False, [2, 2], 1, 16, False),
    "resnet50": (True, [2, 2], 1, 16, False),
    "resnext50": (True, [2, 2], 4, 4, False),
    "wide_resnet50_2": (True, [1, 1], 1, 32, False),
    "genet": (False, [1, 1], 1, 16, True),
}


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, bottleneck, groups, width, gate):
        super().__init__()
        inner = groups * width if bottleneck else outputs
        layers = (
            [nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True)]
            if bottleneck
            else []
        )
        source = inner if bottleneck else inputs
        layers += [nn.Conv2d(source, inner, 3, stride, 1, groups=groups if bottleneck else 1, bias=False)]
        layers += [nn.BatchNorm2d(inner), nn.ReLU(inplace=True)]
        layers += [
            nn.Conv2d(inner, outputs, 1 if bottleneck else 3, 1, 0 if bottleneck else 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.body = nn.Sequential(*layers)
        self.gate = gate
        self.skip = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.body(x)
        if self.gate:
            y = y * torch.sigmoid(F.adaptive_avg_pool2d(y, 1))
        return F.relu(y + self.skip(x))


class ResNet(nn.Module):
    def __init__(self, arch, classes):
        super().__init__()
        bottleneck, blocks, groups, width, gate = ARCHITECTURES[arch]
        channels = 16
        layers = [
            nn.Conv2d(3, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        for stage, count in enumerate(blocks):
            outputs = 32 * 2**stage
            for i in range(count):
                layers.append(Block(channels, outputs, 2 if i == 0 and stage else 1, bottleneck, groups, width, gate))
                channels = outputs
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--arch", default="resnet50", choices=sorted(ARCHITECTURES))
    parser.add_argument("--gpu", default=0, type=int, help="GPU id to use")
    parser.add_argument("--no-cuda", action="store_true", help="train on the CPU")
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    args.cuda = not args.no_cuda and torch.cuda.is_available()
    model = ResNet(args.arch, 4)
    criterion = nn.CrossEntropyLoss()
    if args.cuda:
        torch.cuda.set_device(args.gpu)
        torch.cuda.manual_seed_all(args.seed)
        model = torch.nn.DataParallel(model, device_ids=[args.gpu]).cuda(args.gpu)
        criterion = criterion.cuda(args.gpu)
        cudnn.benchmark = True
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    losses = []
    batches = data.loader(*data.images(args.steps * args.batch_size, 32, 4), batch_size=args.batch_size)
    for step, (images, target) in enumerate(batches):
        if args.cuda:
            images = images.cuda(args.gpu, non_blocking=True)
            target = target.cuda(args.gpu, non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f} acc {(output.argmax(1) == target).float().mean().item():.3f}")
    return losses


if __name__ == "__main__":
    main()
