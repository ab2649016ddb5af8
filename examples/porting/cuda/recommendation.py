# RecVAE: a dense auto-encoder over items with a composite prior and alternating updates.
# ruff: isort: skip_file
"""Collaborative filtering; device chosen by index, log-sum-exp of Gaussians."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import data


class Encoder(nn.Module):
    def __init__(self, items, hidden, latent):
        super().__init__()
        self.fc1, self.ln1 = nn.Linear(items, hidden), nn.LayerNorm(hidden)
        self.fc2, self.ln2 = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)
        self.mean, self.log_variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)

    def forward(self, x):
        x = x / x.pow(2).sum(-1, keepdim=True).sqrt().clamp(min=1e-6)
        h = F.silu(self.ln1(self.fc1(x)))
        h = F.silu(self.ln2(self.fc2(h) + h))
        return self.mean(h), self.log_variance(h)


def log_normal(x, mean, log_variance):
    return -0.5 * (log_variance + math.log(2 * math.pi) + (x - mean).pow(2) / log_variance.exp())


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--gpu", type=int, default=0, help="index of the GPU, -1 for the CPU")
    parser.add_argument("--items", type=int, default=64)
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    device = torch.device("cuda", args.gpu) if args.gpu >= 0 and torch.cuda.is_available() else torch.device("cpu")
    encoder = Encoder(args.items, 32, 8).to(device)
    decoder = nn.Linear(8, args.items).to(device)
    prior = copy.deepcopy(encoder).requires_grad_(False)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=args.lr / 10)
    g = torch.Generator().manual_seed(11)
    ratings = (torch.rand(args.steps * args.batch_size, args.items, generator=g) < 0.2).float()
    losses = []
    for step, (x,) in enumerate(data.loader(ratings, batch_size=args.batch_size)):
        x = x.to(device)
        mean, log_variance = encoder(x)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn(mean.shape, generator=g).to(device)
        old_mean, old_variance = prior(x)
        densities = [log_normal(z, torch.zeros_like(z), torch.zeros_like(z)), log_normal(z, old_mean, old_variance)]
        mixture = torch.logsumexp(torch.stack(densities, -1) + math.log(0.5), -1)
        divergence = (log_normal(z, mean, log_variance) - mixture).sum(-1).mean()
        likelihood = (F.log_softmax(decoder(z), -1) * x).sum(-1).mean()
        loss = -likelihood + 0.2 * divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 1:
            prior.load_state_dict(encoder.state_dict())
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
