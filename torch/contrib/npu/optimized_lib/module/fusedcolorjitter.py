"""Random changes of a picture's colours, all of them in one pass over its pixels."""

import math
from collections.abc import Callable

import torch

# The grey of a picture, and from RGB to YIQ, in which a change of hue is a rotation of the last two.
_GREY = torch.tensor([0.299, 0.587, 0.114])
_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


def _range(name: str, value, centre: float, least: float, most: float) -> tuple[float, float] | None:
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"FusedColorJitter: {name} must not be negative, got {value}")
        low, high = max(centre - value, least), centre + value
    else:
        low, high = value
    if not least <= low <= high <= most:
        raise ValueError(f"FusedColorJitter: {name} must lie between {least} and {most}, got {(low, high)}")
    return None if low == high == centre else (low, high)


class FusedColorJitter(torch.nn.Module):
    """torchvision.transforms.ColorJitter as one linear map of the colours.

    Brightness, contrast and saturation are torchvision's, except that only the last result is kept within bounds, not
    each one on the way; hue is a rotation in YIQ (torchvision's is one in HSV).

    Args:
        brightness, contrast, saturation: a number ``v``: the factor is drawn from ``max(0, 1 - v)`` to ``1 + v``; or
            both ends.
        hue: a number ``v`` up to 0.5: the share of a full turn is drawn from ``-v`` to ``v``; or both ends.

    Called with a PIL picture in RGB, returns one; with a tensor (..., 3, h, w), uint8 or floating point in 0..1, one of
    its dtype and device.

    Raises:
        ValueError: a range is out of bounds.
    """

    def __init__(self, brightness=0, contrast=0, saturation=0, hue=0):
        super().__init__()
        self.brightness = _range("brightness", brightness, 1.0, 0.0, math.inf)
        self.contrast = _range("contrast", contrast, 1.0, 0.0, math.inf)
        self.saturation = _range("saturation", saturation, 1.0, 0.0, math.inf)
        self.hue = _range("hue", hue, 0.0, -0.5, 0.5)

    def _steps(self) -> list[Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]]:
        # Each gives, for a picture's mean colour, the matrix and the offset of a change.
        none = torch.zeros(3)

        def drawn(ends):
            return float(torch.empty(1).uniform_(*ends))

        def contrast(mean, ends):
            factor = drawn(ends)
            return factor * torch.eye(3), (1 - factor) * torch.dot(_GREY, mean).expand(3)

        def saturation(mean, ends):
            factor = drawn(ends)
            return factor * torch.eye(3) + (1 - factor) * _GREY.expand(3, 3), none

        def hue(mean, ends):
            angle = 2 * math.pi * drawn(ends)
            turn = torch.eye(3)
            turn[1:, 1:] = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            return torch.linalg.solve(_YIQ, turn @ _YIQ), none

        changes = [
            (lambda mean, ends: (drawn(ends) * torch.eye(3), none), self.brightness),
            (contrast, self.contrast),
            (saturation, self.saturation),
            (hue, self.hue),
        ]
        wanted = [(change, ends) for change, ends in changes if ends is not None]
        order = torch.randperm(len(wanted)).tolist()
        return [lambda mean, pair=wanted[i]: pair[0](mean, pair[1]) for i in order]

    def _changed(self, colours: torch.Tensor) -> torch.Tensor:
        # Colours of shape (..., 3, pixels) in 0..1, float32.
        steps = self._steps()
        if not steps:
            return colours
        matrix, offset = torch.eye(3), torch.zeros(3)
        mean = colours.movedim(-2, 0).flatten(1).mean(1).cpu() if self.contrast else torch.zeros(3)
        for step in steps:
            linear, added = step(matrix @ mean + offset)
            matrix, offset = linear @ matrix, linear @ offset + added
        changed = matrix.to(colours.device) @ colours + offset.to(colours.device)[:, None]
        return changed.clamp_(0, 1)

    def forward(self, img):
        if isinstance(img, torch.Tensor):
            whole = img.dtype == torch.uint8
            colours = img.flatten(-2).float() / (255 if whole else 1)
            changed = self._changed(colours).view(img.shape)
            return (changed * 255).round().to(torch.uint8) if whole else changed.to(img.dtype)
        import numpy as np
        from PIL import Image

        picture = torch.from_numpy(np.array(img)).permute(2, 0, 1)
        return Image.fromarray(self(picture).permute(1, 2, 0).numpy())
