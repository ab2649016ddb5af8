# EAST, Advanced EAST, PSENet and the detection branch of FOTS: score and geometry maps from merged features.
# ruff: isort: skip_file
"""Text detection with a dice loss on scores and an IoU loss on boxes; CUDA_VISIBLE_DEVICES set in the script."""

import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")

import torch
import torch.nn as nn
import torch.nn.functional as F

import data

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class East(nn.Module):
    def __init__(self, kernels):
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.high = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
        self.merge = nn.Sequential(nn.Conv2d(48, 16, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.score = nn.Conv2d(16, kernels, 1)
        self.box = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        low = self.low(x)
        high = F.interpolate(self.high(low), scale_factor=2, mode="bilinear", align_corners=True)
        merged = self.merge(torch.cat([low, high], 1))
        return torch.sigmoid(self.score(merged)), torch.sigmoid(self.box(merged)) * 32


def dice_loss(truth, predicted):
    overlap = torch.sum(truth * predicted)
    return 1.0 - 2 * overlap / (torch.sum(truth) + torch.sum(predicted) + 1e-5)


def box_loss(truth, predicted, score):
    d1, d2, d3, d4 = torch.split(truth, 1, 1)
    p1, p2, p3, p4 = torch.split(predicted, 1, 1)
    width, height = torch.min(d2, p2) + torch.min(d4, p4), torch.min(d1, p1) + torch.min(d3, p3)
    overlap = width * height
    union = (d1 + d3) * (d2 + d4) + (p1 + p3) * (p2 + p4) - overlap
    return torch.mean(-torch.log((overlap + 1.0) / (union + 1.0)) * score)


def targets(count):
    images, masks = data.masks(count, 32)
    score = F.max_pool2d(masks.unsqueeze(1).float(), 2)
    return images, score, score.repeat(1, 4, 1, 1) * 8 + 1


def main(argv=None):
    global device
    parser = data.step_parser(__doc__)
    parser.add_argument("--kernels", type=int, default=1, help="score maps: 1 for EAST and FOTS, more for PSENet")
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args(argv)
    if args.cpu:
        device = torch.device("cpu")
    torch.manual_seed(args.seed)
    model = East(args.kernels).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr / 10, weight_decay=1e-5)
    losses = []
    for step, batch in enumerate(data.loader(*targets(args.steps * args.batch_size), batch_size=args.batch_size)):
        image, score, geometry = (t.to(device) for t in batch)
        predicted, box = model(image)
        loss = sum(dice_loss(score, predicted[:, i : i + 1]) for i in range(args.kernels))
        loss = loss + box_loss(geometry, box, score)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
