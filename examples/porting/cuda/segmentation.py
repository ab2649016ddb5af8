# U-Net, FCN and DeepLabV3+: skip connections, transposed convolutions, dilation, bilinear up-sampling.
# ruff: isort: skip_file
"""Semantic segmentation; checkpoint with map_location, memory statistics."""

import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

import data


def double(inputs, outputs, dilation=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=dilation, dilation=dilation),
        nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.down1, self.down2, self.bottom = double(1, 8), double(8, 16), double(16, 32)
        self.up2, self.merge2 = nn.ConvTranspose2d(32, 16, 2, 2), double(32, 16)
        self.up1, self.merge1 = nn.ConvTranspose2d(16, 8, 2, 2), double(16, 8)
        self.out = nn.Conv2d(8, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.merge2(torch.cat([self.up2(c), b], 1))
        return self.out(self.merge1(torch.cat([self.up1(b), a], 1)))


class FCN(nn.Module):
    """Stride 4 features, classified and up-sampled; with ``atrous`` the parallel dilations of DeepLab."""

    def __init__(self, classes=3, atrous=False):
        super().__init__()
        self.stem = nn.Sequential(double(1, 16), nn.MaxPool2d(2), double(16, 32), nn.MaxPool2d(2))
        self.branches = nn.ModuleList(double(32, 16, rate) for rate in ((1, 2, 3) if atrous else (1,)))
        self.head = nn.Conv2d(16 * len(self.branches), classes, 1)

    def forward(self, x):
        features = self.stem(x)
        logits = self.head(torch.cat([branch(features) for branch in self.branches], 1))
        return F.interpolate(logits, size=x.shape[-2:], mode="bilinear", align_corners=False)


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--arch", default="unet", choices=["unet", "fcn", "deeplabv3plus"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    device = args.device
    net = UNet() if args.arch == "unet" else FCN(atrous=args.arch == "deeplabv3plus")
    net.to(device=device)
    weight = torch.tensor([0.5, 1.0, 1.0], device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    losses = []
    for step, (x, y) in enumerate(
        data.loader(*data.masks(args.steps * args.batch_size, 32, 3), batch_size=args.batch_size)
    ):
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(net(x), y, weight=weight, ignore_index=255)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f}")
    path = os.path.join(tempfile.mkdtemp(), "net.pth")
    torch.save(net.state_dict(), path)
    net.load_state_dict(torch.load(path, map_location=device))
    if device == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**20:.1f} MiB")
        torch.cuda.empty_cache()
    return losses


if __name__ == "__main__":
    main()
