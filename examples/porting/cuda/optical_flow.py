# RAFT: all-pairs correlation, look-ups with grid_sample, a convolutional GRU that refines the flow.
# ruff: isort: skip_file
"""Optical flow with iterative refinement; DataParallel around the net, .module for the checkpoint."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import data


class ConvGRU(nn.Module):
    def __init__(self, hidden, inputs):
        super().__init__()
        self.z, self.r, self.q = (nn.Conv2d(hidden + inputs, hidden, 3, padding=1) for _ in range(3))

    def forward(self, h, x):
        hx = torch.cat([h, x], 1)
        z, r = torch.sigmoid(self.z(hx)), torch.sigmoid(self.r(hx))
        return (1 - z) * h + z * torch.tanh(self.q(torch.cat([r * h, x], 1)))


class RAFT(nn.Module):
    def __init__(self, hidden=16, iterations=2):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.InstanceNorm2d(16), nn.ReLU(), nn.Conv2d(16, hidden, 3, 2, 1)
        )
        self.update, self.flow, self.iterations = ConvGRU(hidden, 9 + 2), nn.Conv2d(hidden, 2, 3, padding=1), iterations

    def look_up(self, correlation, coordinates):
        """Correlations in a 3 x 3 window around each coordinate: [n, 9, h, w]."""
        n, h, w = coordinates.shape[0], *coordinates.shape[-2:]
        offsets = torch.stack(torch.meshgrid(torch.arange(-1.0, 2), torch.arange(-1.0, 2), indexing="ij"), -1)
        points = coordinates.permute(0, 2, 3, 1).reshape(n * h * w, 1, 1, 2) + offsets.to(coordinates.device).unsqueeze(
            0
        )
        size = torch.tensor([w - 1, h - 1], dtype=torch.float32, device=coordinates.device)
        sampled = F.grid_sample(correlation, 2 * points / size - 1, align_corners=True)
        return sampled.view(n, h, w, 9).permute(0, 3, 1, 2)

    def forward(self, first, second):
        a, b = self.features(first), self.features(second)
        n, c, h, w = a.shape
        correlation = torch.matmul(a.view(n, c, h * w).transpose(1, 2), b.view(n, c, h * w)) / c**0.5
        correlation = correlation.reshape(n * h * w, 1, h, w)
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack([columns, rows]).float().to(first.device).expand(n, 2, h, w)
        flow, hidden, flows = torch.zeros_like(grid), torch.tanh(a), []
        for _ in range(self.iterations):
            flow = flow.detach()
            hidden = self.update(hidden, torch.cat([self.look_up(correlation, grid + flow), flow], 1))
            flow = flow + self.flow(hidden)
            flows.append(F.interpolate(flow, scale_factor=4, mode="bilinear", align_corners=True) * 4)
        return flows


def pairs(count):
    g = torch.Generator().manual_seed(13)
    first = F.avg_pool2d(torch.randn(count, 1, 32, 32, generator=g), 3, 1, 1)
    shift = torch.randint(-3, 4, (count,), generator=g)
    second = torch.stack([image.roll(int(s), -1) for image, s in zip(first, shift, strict=True)])
    flow = torch.zeros(count, 2, 32, 32)
    flow[:, 0] = shift[:, None, None].float()
    return first, second, flow


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    model = RAFT()
    use_cuda = torch.cuda.is_available() and not args.cpu
    if use_cuda:
        model = nn.DataParallel(model)
        model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr / 10)
    losses = []
    for step, batch in enumerate(data.loader(*pairs(args.steps * 2), batch_size=2)):
        first, second, truth = [x.cuda() if use_cuda else x for x in batch]
        flows = model(first, second)
        loss = sum(0.8 ** (len(flows) - i - 1) * (flow - truth).abs().mean() for i, flow in enumerate(flows))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f}")
    state = model.module.state_dict() if use_cuda else model.state_dict()
    print("tensors in the checkpoint:", len(state))
    return losses


if __name__ == "__main__":
    main()
