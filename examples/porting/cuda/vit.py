# ViT: patches, class token, multi-head attention, GELU; trained with automatic mixed precision if asked to.
# ruff: isort: skip_file
"""Vision transformer with torch.cuda.amp."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast

import data


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, width * 3), nn.Linear(width, width)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(x).reshape(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attention = (q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5).softmax(-1)
        return self.proj((attention @ v).transpose(1, 2).reshape(n, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.mlp = (
            nn.LayerNorm(width),
            nn.Sequential(nn.Linear(width, width * 4), nn.GELU(), nn.Linear(width * 4, width)),
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, width=32, depth=2, heads=4, patch=8, size=32, classes=4):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    model = ViT().to(args.device)
    on_gpu = args.device.startswith("cuda")
    scaler = GradScaler(enabled=args.amp and on_gpu, init_scale=1024.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr / 10, weight_decay=0.05)
    losses = []
    for step, (x, y) in enumerate(
        data.loader(*data.images(args.steps * args.batch_size, 32, 4), batch_size=args.batch_size)
    ):
        x, y = x.to(args.device, non_blocking=True), y.to(args.device, non_blocking=True)
        with autocast(enabled=args.amp and on_gpu):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f} scale {scaler.get_scale():.0f}")
    return losses


if __name__ == "__main__":
    main()
