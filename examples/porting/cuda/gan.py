# VAE+GAN and FD-GAN: an encoder, a decoder and a discriminator trained in turns.
# ruff: isort: skip_file
"""A variational auto-encoder with an adversarial loss; three nets and two optimizers on the device."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import data


class Encoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.BatchNorm2d(32),
            nn.LeakyReLU(0.2),
        )
        self.mean, self.log_variance = nn.Linear(32 * 16, latent), nn.Linear(32 * 16, latent)

    def forward(self, x):
        x = self.body(x).flatten(1)
        return self.mean(x), self.log_variance(x)


class Decoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.fc = nn.Linear(latent, 32 * 16)
        self.body = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.body(self.fc(z).view(-1, 32, 4, 4))


class Discriminator(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(32 * 16, 1),
        )


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--latent", type=int, default=8)
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    nets = [Encoder(args.latent), Decoder(args.latent), Discriminator()]
    encoder, decoder, discriminator = [net.to(args.device) for net in nets]
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=args.lr / 10, betas=(0.5, 0.999))
    adversary = torch.optim.Adam(discriminator.parameters(), lr=args.lr / 10, betas=(0.5, 0.999))
    noise = torch.Generator().manual_seed(7)
    losses = []
    images, _ = data.images(args.steps * args.batch_size, 16, 2, channels=1)
    for step, (x,) in enumerate(data.loader(images.tanh(), batch_size=args.batch_size)):
        x = x.to(args.device)
        if "cuda" in args.device:
            assert x.is_cuda
        mean, log_variance = encoder(x)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn(mean.shape, generator=noise).to(args.device)
        fake = decoder(z)
        real, made = discriminator(x), discriminator(fake.detach())
        d_loss = F.binary_cross_entropy_with_logits(real, torch.ones_like(real)) + F.binary_cross_entropy_with_logits(
            made, torch.zeros_like(made)
        )
        adversary.zero_grad()
        d_loss.backward()
        adversary.step()
        made = discriminator(fake)
        divergence = -0.5 * torch.mean(1 + log_variance - mean.pow(2) - log_variance.exp())
        g_loss = (
            F.l1_loss(fake, x)
            + 0.1 * divergence
            + 0.1 * F.binary_cross_entropy_with_logits(made, torch.ones_like(made))
        )
        optimizer.zero_grad()
        g_loss.backward()
        optimizer.step()
        losses.append(d_loss.item() + g_loss.item())
        print(f"step {step} d_loss {d_loss.item():.5f} g_loss {g_loss.item():.5f}")
    return losses


if __name__ == "__main__":
    main()
