"""ShuffleNet V2 with a choice of the channel shuffle's form; parameters are named as torchvision's and fit its."""

from collections.abc import Sequence

import forms

from torch import Tensor, nn

WIDTHS = (24, 116, 232, 464, 1024)  # x1.0
REPEATS = (4, 8, 4)


def _conv(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def _depthwise(channels: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False), nn.BatchNorm2d(channels)]


class Unit(nn.Module):
    """Takes a whole and halves its size (stride 2), or takes halves of which one passes by; then shuffles."""

    def __init__(self, inputs: int, outputs: int, stride: int, shuffle: nn.Module):
        super().__init__()
        half = outputs // 2
        self.stride = stride
        self.branch1 = nn.Sequential(*(_depthwise(inputs, stride) + _conv(inputs, half) if stride == 2 else []))
        narrow = inputs if stride == 2 else half
        self.branch2 = nn.Sequential(*_conv(narrow, half), *_depthwise(half, stride), *_conv(half, half))
        self.shuffle = shuffle

    def forward(self, x: Tensor | forms.Halves) -> Tensor | forms.Halves:
        passed, taken = (x, x) if self.stride == 2 else x
        return self.shuffle(self.branch1(passed), self.branch2(taken))


class ShuffleNetV2(nn.Module):
    """The x1.0 network by default, for pictures (n, 3, size, size)."""

    def __init__(
        self,
        form: type[nn.Module] = forms.ByLibrary,
        classes: int = 1000,
        widths: Sequence[int] = WIDTHS,
        repeats: Sequence[int] = REPEATS,
    ):
        super().__init__()
        first, last = widths[0], widths[-1]
        self.conv1 = nn.Sequential(
            nn.Conv2d(3, first, 3, 2, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU(inplace=True)
        )
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = first
        for number, (outputs, count) in enumerate(zip(widths[1:-1], repeats, strict=True), 2):
            # The last unit of a stage gives a whole, which both branches of the next stage read.
            units = [
                Unit(inputs if at == 0 else outputs, outputs, 2 if at == 0 else 1, form(outputs, split=at < count - 1))
                for at in range(count)
            ]
            self.add_module(f"stage{number}", nn.Sequential(*units))
            inputs = outputs
        self.conv5 = nn.Sequential(*_conv(inputs, last))
        self.fc = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.conv1(x))
        x = self.stage4(self.stage3(self.stage2(x)))
        return self.fc(self.conv5(x).mean((2, 3)))
