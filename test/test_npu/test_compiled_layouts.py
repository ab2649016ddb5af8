"""Compiled functions and networks give what they give eagerly, in either memory format: what a compiler is told of
strides (test_announced.py) is what the kernels give."""

import unittest

import torch.nn.functional as F

import torch
from torch import nn


class Residual(nn.Module):
    """x + the branch of x, activated."""

    def __init__(self, *branch, by=None):
        super().__init__()
        self.branch, self.by = nn.Sequential(*branch), by or nn.Identity()

    def forward(self, x):
        return F.relu(self.branch(x) + self.by(x))


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)

    def forward(self, x):
        weights = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.up(F.silu(self.down(weights))))


class Shuffled(nn.Module):
    """Half of the channels goes through a branch, then the halves are shuffled."""

    def __init__(self, channels):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(nn.Conv2d(half, half, 3, padding=1, groups=half), nn.BatchNorm2d(half))

    def forward(self, x):
        kept, changed = x.chunk(2, dim=1)
        x = torch.cat((kept, self.branch(changed)), dim=1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class PixelAttention(nn.Module):
    """Attention among an image's pixels."""

    def __init__(self, channels, heads):
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(2, channels), heads
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(n, c, h, w))


class Patches(nn.Module):
    """Patches of an image as words of a transformer."""

    def __init__(self, width):
        super().__init__()
        self.cut = nn.Conv2d(4, width, 2, stride=2)
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True, norm_first=True)

    def forward(self, x):
        return self.layer(self.cut(x).flatten(2).transpose(1, 2)).mean(1)


class ChannelsLastNorm(nn.Module):
    """Layer norm of channels between permutations, as ConvNeXt has it."""

    def __init__(self, channels):
        super().__init__()
        self.depth, self.norm = nn.Conv2d(channels, channels, 3, padding=1, groups=channels), nn.LayerNorm(channels)
        self.wide, self.narrow = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)

    def forward(self, x):
        y = self.narrow(F.gelu(self.wide(self.norm(self.depth(x).permute(0, 2, 3, 1)))))
        return x + y.permute(0, 3, 1, 2)


class Windows(nn.Module):
    """Shifted windows, as Swin has them."""

    def forward(self, x):
        n, c, h, w = x.shape
        x = x.roll((1, 1), (2, 3)).view(n, c, h // 2, 2, w // 2, 2)
        x = x.permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, c)
        x = F.scaled_dot_product_attention(x, x, x)
        x = x.view(n, h // 2, w // 2, 2, 2, c).permute(0, 5, 1, 3, 2, 4).reshape(n, c, h, w)
        return x.roll((-1, -1), (2, 3))


class UpAndDown(nn.Module):
    """Half a U: a strided step down, a transposed convolution up, joined."""

    def __init__(self, channels):
        super().__init__()
        self.down = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(2 * channels, channels, 2, stride=2)
        self.join = nn.Conv2d(2 * channels, channels, 3, padding=1)

    def forward(self, x):
        return self.join(torch.cat((x, self.up(F.relu(self.down(x)))), 1))


class Pyramid(nn.Module):
    """Features at two sizes, pooled and added."""

    def forward(self, x):
        small = F.avg_pool2d(x, 2)
        large = F.interpolate(small, size=x.shape[-2:], mode="bilinear", align_corners=False)
        nearest = F.interpolate(F.adaptive_max_pool2d(x, 2), scale_factor=4)
        return torch.flatten(F.pad(large + nearest, (1, 1, 1, 1), mode="reflect"), 1)


IMAGE = (2, 4, 8, 8)
BLOCKS = {
    "basic": (IMAGE, lambda: Residual(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())),
    "bottleneck": (
        IMAGE,
        lambda: Residual(
            *(nn.Conv2d(4, 2, 1, bias=False), nn.BatchNorm2d(2), nn.ReLU()),
            *(nn.Conv2d(2, 2, 3, 2, 1, bias=False), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 8, 1)),
            by=nn.Sequential(nn.Conv2d(4, 8, 1, 2), nn.BatchNorm2d(8)),
        ),
    ),
    "stem": (
        IMAGE,
        lambda: nn.Sequential(nn.Conv2d(4, 6, 7, 2, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
    ),
    "inverted residual": (
        IMAGE,
        lambda: nn.Sequential(nn.Conv2d(4, 8, 1), nn.ReLU6(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Hardswish()),
    ),
    "squeeze and excite": (IMAGE, lambda: SqueezeExcite(4)),
    "channel shuffle": (IMAGE, lambda: Shuffled(4)),
    "group norm": (IMAGE, lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 4, 3, padding=1))),
    "one pixel": (
        (2, 4, 1, 1),
        lambda: nn.Sequential(nn.Conv2d(4, 6, 1), nn.GroupNorm(2, 6), nn.Flatten(), nn.Linear(6, 3)),
    ),
    "instance norm": (
        IMAGE,
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.InstanceNorm2d(6, affine=True), nn.LeakyReLU()),
    ),
    "attention": (IMAGE, lambda: PixelAttention(4, 2)),
    "patches": (IMAGE, lambda: Patches(8)),
    "permuted layer norm": (IMAGE, lambda: ChannelsLastNorm(4)),
    "shifted windows": (IMAGE, lambda: Windows()),
    "transposed": (IMAGE, lambda: nn.Sequential(nn.ConvTranspose2d(4, 3, 4, 2, 1), nn.BatchNorm2d(3), nn.Tanh())),
    "up and down": (IMAGE, lambda: UpAndDown(4)),
    "pixel shuffle": (
        IMAGE,
        lambda: nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.PixelShuffle(2), nn.PReLU(), nn.PixelUnshuffle(2)),
    ),
    "pyramid": (IMAGE, lambda: Pyramid()),
    "classifier": (
        IMAGE,
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5), nn.LogSoftmax(1)),
    ),
    "volume": (
        (2, 3, 4, 6, 6),
        lambda: nn.Sequential(nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4), nn.MaxPool3d(2), nn.Flatten()),
    ),
    "transposed volume": (
        (2, 3, 3, 4, 4),
        lambda: nn.Sequential(nn.ConvTranspose3d(3, 4, 2, 2), nn.GroupNorm(2, 4), nn.AvgPool3d(2)),
    ),
}


class TestCompiledLayouts(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def compiled_as_eager(self, module, x):
        results = []
        for call in (module, torch.compile(module, backend="aot_eager", fullgraph=True)):
            given = x.detach().clone().requires_grad_()
            y = call(given)
            y.square().sum().backward()
            results.append([y, given.grad, *(p.grad.clone() for p in module.parameters())])
            module.zero_grad()
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(b, a)
        return results[1][0]

    def test_a_compiled_network_of_channels_last_images(self):
        for conv, size, last in (
            (nn.Conv2d(3, 4, 3), (2, 3, 6, 6), torch.channels_last),
            (nn.ConvTranspose2d(3, 4, 3), (2, 3, 4, 4), torch.channels_last),
            (nn.Conv3d(3, 4, 3), (2, 3, 6, 6, 6), torch.channels_last_3d),
            (nn.Conv2d(3, 4, 1), (2, 3, 1, 1), torch.channels_last),
        ):
            features = conv(torch.ones(size)).flatten(1).shape[1]
            net = nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(features, 5)).npu()
            for x in (torch.randn(size).npu(), torch.randn(size).npu().contiguous(memory_format=last)):
                with self.subTest(type(conv).__name__, strides=x.stride()):
                    self.compiled_as_eager(net, x)
        net = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5)).npu()
        self.compiled_as_eager(net, torch.randn(2, 3, 6).npu())

    def test_blocks_of_networks(self):
        """Building blocks of known networks, compiled, give what they give eagerly, in either memory format."""
        for name, (size, make) in BLOCKS.items():
            block = make().npu()
            for last in (False, True):
                x = torch.randn(size)
                if last:
                    x = x.contiguous(memory_format={4: torch.channels_last, 5: torch.channels_last_3d}[len(size)])
                    block = block.to(memory_format=torch.channels_last) if len(size) == 4 else block
                with self.subTest(name, channels_last=last):
                    torch._dynamo.reset()
                    self.compiled_as_eager(block, x.npu())

    def test_a_branch_on_the_memory_format(self):
        def function(x, w):
            y = F.conv2d(x, w)
            return y * 2 if y.is_contiguous(memory_format=torch.channels_last) else y * 3

        x, w = torch.randn(2, 3, 5, 5).npu(), torch.randn(4, 3, 3, 3).npu()
        for given in (x, x.contiguous(memory_format=torch.channels_last)):
            compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
            torch.testing.assert_close(compiled(given, w), function(given, w))

    def test_a_gradient_through_as_strided(self):
        def function(x, w):
            y = F.conv2d(x, w)
            return (torch.as_strided(y, (4,), (2,), 3) * torch.arange(4.0, device=x.device)).sum()

        x = torch.randn(2, 3, 5, 5).contiguous(memory_format=torch.channels_last)
        w = torch.randn(4, 3, 3, 3)
        wanted = None
        for call in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
            for device in ("cpu", "npu"):
                given, weight = (t.detach().to(device).requires_grad_() for t in (x, w))
                call(given, weight).backward()
                wanted = wanted or (given.grad, weight.grad)
                torch.testing.assert_close(given.grad.cpu(), wanted[0])
                torch.testing.assert_close(weight.grad.cpu(), wanted[1])

    def test_changing_sizes(self):
        """Symbolic shapes are announced by the same rules."""
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)).npu()
        net.eval()
        compiled = torch.compile(net, backend="aot_eager", dynamic=True)
        for batch in (2, 3, 5):
            x = torch.randn(batch, 3, 6, 6).npu().contiguous(memory_format=torch.channels_last)
            torch.testing.assert_close(compiled(x), net(x))


if __name__ == "__main__":
    unittest.main()
