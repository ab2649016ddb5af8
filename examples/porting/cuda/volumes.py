# 3D Nested U-Net and 3D AttentionNet: volumes, nested skips, attention gates.
# ruff: isort: skip_file
"""Segmentation of volumes with 3D convolutions."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import data


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, padding=1), nn.BatchNorm3d(outputs), nn.LeakyReLU(0.01, inplace=True)
    )


class NestedUNet(nn.Module):
    def __init__(self, attention, classes=2):
        super().__init__()
        self.x00, self.x10, self.x01 = block(1, 8), block(8, 16), block(24, 8)
        self.x20, self.x11, self.x02 = block(16, 16), block(32, 16), block(32, 8)
        self.gate = nn.Sequential(nn.Conv3d(8, 8, 1), nn.Sigmoid()) if attention else None
        self.out = nn.Conv3d(8, classes, 1)

    @staticmethod
    def up(x):
        return F.interpolate(x, scale_factor=2, mode="nearest")

    def forward(self, x):
        x00 = self.x00(x)
        x10 = self.x10(F.max_pool3d(x00, 2))
        x01 = self.x01(torch.cat([x00, self.up(x10)], 1))
        x20 = self.x20(F.max_pool3d(x10, 2))
        x11 = self.x11(torch.cat([x10, self.up(x20)], 1))
        x02 = self.x02(torch.cat([x00, x01, self.up(x11)], 1))
        if self.gate is not None:
            x02 = (1 + self.gate(x00)) * x02
        return self.out(x02)


def dice(logits, target):
    probability = logits.softmax(1)[:, 1]
    target = target.float()
    overlap = (probability * target).sum((1, 2, 3))
    return 1 - ((2 * overlap + 1) / (probability.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)).mean()


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--attention", action="store_true")
    parser.add_argument("--no_cuda", action="store_true")
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    on_gpu = torch.cuda.is_available() and not args.no_cuda
    dev = torch.device("cuda" if on_gpu else "cpu")
    net = nn.DataParallel(NestedUNet(args.attention)).to(dev) if on_gpu else NestedUNet(args.attention)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr / 10)
    losses = []
    batch = min(args.batch_size, 2)
    for step, (x, y) in enumerate(data.loader(*data.masks(args.steps * batch, 16, 2, depth=8), batch_size=batch)):
        logits = net(x.to(dev))
        target = y.to(dev)
        loss = dice(logits, target) + F.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f}")
    model = net.module if isinstance(net, nn.DataParallel) else net
    print("parameters", sum(p.numel() for p in model.parameters()))
    return losses


if __name__ == "__main__":
    main()
