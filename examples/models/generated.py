"""Generated data: small, made of what a network of the kind has to find, and decided by the generator alone."""

import math

import torch
from torch import Generator, Tensor


def class_images(count: int, size: int, classes: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Gratings whose direction and colour are their class, in noise: images (count, 3, size, size), labels (count)."""
    labels = torch.randint(classes, (count,), generator=generator)
    angle = labels.float() * (math.pi / classes)
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    phase = 2 * math.pi * torch.rand(count, 1, 1, generator=generator)
    wave = angle.cos()[:, None, None] * x + angle.sin()[:, None, None] * y
    grating = (0.6 * wave + phase).sin()
    tint = torch.stack([angle.cos(), angle.sin(), (2 * angle).cos()], 1)
    images = grating[:, None] * (0.5 + 0.5 * tint[:, :, None, None])
    return images + 0.3 * torch.randn(count, 3, size, size, generator=generator), labels


def random_boxes(count: int, most: int, size: int, generator: Generator, least_side: float = 0.2) -> Tensor:
    """Square-like boxes inside of a picture: (count, most, 4) as x1, y1, x2, y2 in pixels."""
    side = size * (least_side + 0.25 * torch.rand(count, most, 2, generator=generator))
    corner = (size - side) * torch.rand(count, most, 2, generator=generator)
    return torch.cat([corner, corner + side], -1)


def inside(boxes: Tensor, size: int) -> Tensor:
    """Which pixels each box covers: (..., 4) -> bool (..., size, size)."""
    centre = torch.arange(size) + 0.5
    x1, y1, x2, y2 = (edge[..., None] for edge in boxes.unbind(-1))
    across, down = (centre >= x1) & (centre < x2), (centre >= y1) & (centre < y2)
    return down[..., :, None] & across[..., None, :]


def box_images(
    count: int, size: int, classes: int, generator: Generator, most: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures with ``most`` boxes of a colour that is their class.

    Returns images (count, 3, size, size), boxes (count, most, 4) in pixels and labels (count, most).
    """
    boxes = random_boxes(count, most, size, generator)
    labels = torch.randint(classes, (count, most), generator=generator)
    images = 0.2 * torch.randn(count, 3, size, size, generator=generator)
    colours = torch.linspace(0.4, 1.6, classes)[labels]
    covered = inside(boxes, size)
    for box in range(most):
        for channel in range(3):
            value = colours[:, box, None, None] * (1.0 if channel == 0 else 1.0 - 0.3 * channel)
            images[:, channel] = torch.where(covered[:, box], value, images[:, channel])
    return images, boxes, labels


def region_images(count: int, size: int, classes: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Pictures for segmentation: images (count, 3, size, size), the class of every pixel (count, size, size)."""
    images, boxes, labels = box_images(count, size, classes - 1, generator, 3)
    masks = torch.zeros(count, size, size, dtype=torch.long)
    covered = inside(boxes, size)
    for box in range(boxes.shape[1]):
        masks = torch.where(covered[:, box], labels[:, box, None, None] + 1, masks)
    return images, masks


def volumes(count: int, size: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Balls in noise: volumes (count, 1, size, size, size), which voxels are inside (the same shape, floats)."""
    grid = torch.stack(torch.meshgrid(*[torch.arange(size).float()] * 3, indexing="ij"))
    centre = size * (0.3 + 0.4 * torch.rand(count, 3, 1, 1, 1, generator=generator))
    radius = size * (0.15 + 0.15 * torch.rand(count, 1, 1, 1, generator=generator))
    ball = ((grid - centre).square().sum(1) < radius.square()).float()[:, None]
    return ball + 0.4 * torch.randn(ball.shape, generator=generator), ball


def text_lines(
    count: int, height: int, width: int, symbols: int, length: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Lines of ``length`` characters, each a stripe pattern of its own.

    Returns images (count, 3, height, width) and labels (count, length) in 1..symbols; 0 is left for CTC's blank.
    """
    labels = torch.randint(1, symbols + 1, (count, length), generator=generator)
    cell = width // length
    y, x = torch.meshgrid(torch.arange(height), torch.arange(cell), indexing="ij")
    kind = labels.float()[..., None, None]
    glyphs = ((0.2 + 0.08 * kind) * x + (0.9 - 0.07 * kind) * y).sin()  # count, length, height, cell
    line = glyphs.permute(0, 2, 1, 3).reshape(count, 1, height, cell * length)
    line = torch.nn.functional.pad(line, (0, width - cell * length))
    return line.expand(-1, 3, -1, -1) + 0.2 * torch.randn(count, 3, height, width, generator=generator), labels


def smooth_images(count: int, size: int, generator: Generator, channels: int = 3) -> Tensor:
    """Soft pictures in 0..1 without sharp edges: (count, channels, size, size)."""
    coarse = torch.rand(count, channels, max(size // 8, 2), max(size // 8, 2), generator=generator)
    return torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=False).clamp(0, 1)


def sentences(count: int, length: int, words: int, generator: Generator, first: int = 4) -> Tensor:
    """Token sequences (count, length) that follow a rule: a word is decided by the one before it, most of the time."""
    tokens = torch.randint(first, words, (count, length), generator=generator)
    surprise = torch.rand(count, length, generator=generator) < 0.2
    for place in range(1, length):
        expected = (tokens[:, place - 1] * 5 + 3 - first) % (words - first) + first
        tokens[:, place] = torch.where(surprise[:, place], tokens[:, place], expected)
    return tokens


def own_coordinates(places: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Every pixel as seen from tilted rectangles: along and across them, in pixels from the centre.

    Places (..., 5) as centre x, centre y, width, height, angle -> two of (..., size, size).
    """
    x0, y0, _, _, angle = (part[..., None, None] for part in places.unbind(-1))
    pixel = torch.arange(size) + 0.5
    dx, dy = pixel[None, :] - x0, pixel[:, None] - y0
    return dx * angle.cos() + dy * angle.sin(), dy * angle.cos() - dx * angle.sin()


def within(places: Tensor, size: int, share: float = 1.0) -> Tensor:
    """Which pixels are inside of tilted rectangles shrunk to ``share`` of their extents: bool (..., size, size)."""
    along, across = own_coordinates(places, size)
    width, height = (share * places[..., side, None, None] / 2 for side in (2, 3))
    return (along.abs() < width) & (across.abs() < height)


def text_scenes(
    count: int, size: int, symbols: int, length: int, generator: Generator, most: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures with tilted lines of text, one above the other.

    Returns images (count, 3, size, size), places (count, most, 5) as centre x, centre y, width, height, angle, and
    labels (count, most, length) in 1..symbols.
    """

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    band = size / most
    height = band * (0.4 + 0.15 * draw(count, most))
    width = size * (0.6 + 0.15 * draw(count, most))
    x = size / 2 + 0.1 * size * (draw(count, most) - 0.5)
    y = band * (torch.arange(most) + 0.45 + 0.1 * draw(count, most))
    places = torch.stack([x, y, width, height, 0.3 * (draw(count, most) - 0.5)], -1)
    labels = torch.randint(1, symbols + 1, (count, most, length), generator=generator)

    along, across = own_coordinates(places, size)
    where = along / width[..., None, None] + 0.5  # 0 at the line's beginning, 1 at its end
    column = (where * length).floor().clamp(0, length - 1).long()
    kind = labels.gather(2, column.flatten(2)).view_as(column).float()
    glyph = ((0.3 + 0.1 * kind) * along + (1.0 - 0.08 * kind) * across).sin() + 1.0
    image = (glyph * within(places, size)).sum(1, keepdim=True)
    return image.expand(-1, 3, -1, -1) + 0.2 * torch.randn(count, 3, size, size, generator=generator), places, labels
