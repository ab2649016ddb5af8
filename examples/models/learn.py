"""Six of the networks learn something real, from data that packages ship (requirements.txt); nothing is downloaded.

    python examples/models/learn.py [--only NAME] [--device npu|cpu] [--json]

| network | data | what it must reach on data it was not trained on |
| resnet18 | scikit-learn's scanned digits | nine of ten digits right |
| unet | those digits on scikit-image's pictures | mean IoU of 0.7 of digit and background |
| rnet | scikit-image's faces of "labeled faces in the wild" | nine of ten patches right |
| edsr | scikit-image's pictures | 25 dB |
| crnn | lines of scikit-learn's scanned digits | at most one of ten characters wrong |
| roberta | the documentation that Python ships | 22 % of hidden letters right (spaces are 16 %) |

Exit status 1 if one of them does not.
"""

import argparse
import dataclasses
import functools
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("NPU_FALLBACK", "0")  # before torch reads it

sys.path.append(str(Path(__file__).resolve().parents[1] / "llm"))  # the text is the language models' of that folder

import classification
import corpus
import detection
import generative
import harness
import ocr
import segmentation
import sequence
import torch.nn.functional as F
from harness import HELD_OUT, Batch, Task

import torch
from torch import Generator, Tensor

MEASURED_BATCHES = 4
DIGITS_HELD_OUT = 400


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    """1797 scanned digits (n, 8, 8) in 0..1, and which digits they are."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=Generator().manual_seed(1))
    return torch.tensor(images).float().view(-1, 8, 8)[order] / 16, torch.tensor(labels)[order]


@functools.cache
def pictures() -> list[Tensor]:
    """Photographs (3, h, w) in 0..1; the last one is held out."""
    from skimage import data

    loaded = [data.coffee(), data.rocket(), data.chelsea(), data.astronaut()]
    return [torch.tensor(picture).permute(2, 0, 1).float() / 255 for picture in loaded]


@functools.cache
def faces() -> tuple[Tensor, Tensor]:
    """200 grey patches (200, 24, 24) in -1..1, and whether each is a face."""
    from skimage import data

    patches = torch.tensor(data.lfw_subset()).float()[:, :24, :24] * 2 - 1
    order = torch.randperm(200, generator=Generator().manual_seed(2))
    return patches[order], (torch.arange(200) < 100).long()[order]


class RealData(Task):
    """A task whose data tell apart what is trained on from what is held out."""

    held_out = False

    def numbered_batch(self, number: int) -> Batch:
        self.held_out = number >= HELD_OUT
        return super().numbered_batch(number)

    def pick(self, total: int, kept: int, count: int, generator: Generator) -> Tensor:
        """``count`` of the numbers below ``total``, of which the last ``kept`` are held out."""
        first, last = (total - kept, total) if self.held_out else (0, total - kept)
        return torch.randint(first, last, (count,), generator=generator)

    def digits(self, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        images, labels = digits()
        chosen = self.pick(len(labels), DIGITS_HELD_OUT, count, generator)
        return images[chosen], labels[chosen]

    def crops(self, count: int, size: int, generator: Generator) -> Tensor:
        """Pieces of photographs: (count, 3, size, size)."""
        found = []
        for number in self.pick(len(pictures()), 1, count, generator).tolist():
            picture = pictures()[number]
            y, x = (int(torch.randint(side - size, (), generator=generator)) for side in picture.shape[1:])
            found.append(picture[:, y : y + size, x : x + size])
        return torch.stack(found)


class Digits(RealData, classification.Classification):
    def batch(self, generator: Generator) -> Batch:
        images, labels = self.digits(self.batch_size, generator)
        return F.interpolate(images[:, None], size=self.size).expand(-1, 3, -1, -1) * 2 - 1, labels


class DigitsOnPictures(RealData, segmentation.Segmentation):
    """A digit is drawn bright on a darkened photograph; its pixels are to be found."""

    def batch(self, generator: Generator) -> Batch:
        images, _ = self.digits(self.batch_size, generator)
        strokes = F.interpolate(images[:, None], size=self.size // 2, mode="bilinear", align_corners=False)
        canvas = torch.zeros(self.batch_size, 1, self.size, self.size)
        for number, stroke in enumerate(strokes):
            y, x = torch.randint(self.size // 2, (2,), generator=generator).tolist()
            canvas[number, :, y : y + self.size // 2, x : x + self.size // 2] = stroke
        mask = canvas > 0.4
        pictures = self.crops(self.batch_size, self.size, generator) * 0.7
        return torch.where(mask, 0.3 + 0.7 * canvas, pictures) * 2 - 1, mask[:, 0].long()


class Faces(RealData, detection.Cascade):
    """Only whether a patch is a face: the subset has no boxes, so all are said to fill their patch."""

    def batch(self, generator: Generator) -> Batch:
        patches, labels = faces()
        chosen = self.pick(len(labels), 40, self.batch_size, generator)
        boxes = torch.tensor([0.0, 0, 1, 1]).expand(self.batch_size, -1)
        points = torch.tensor([0.3, 0.35, 0.7, 0.35, 0.5, 0.55, 0.35, 0.8, 0.65, 0.8]).expand(self.batch_size, -1)
        return patches[chosen][:, None].expand(-1, 3, -1, -1), labels[chosen], boxes, points

    def optimizer(self, parameters) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=2e-3)


class Photographs(RealData, generative.SuperResolution):
    rate = 1e-3

    def batch(self, generator: Generator) -> Batch:
        high = self.crops(self.batch_size, self.size, generator)
        return F.avg_pool2d(high, 2), high


class DigitLines(RealData, ocr.Recognition):
    """Scanned digits side by side, with gaps and heights as they come, read as a line."""

    def batch(self, generator: Generator) -> Batch:
        lines = torch.zeros(self.batch_size, 1, self.height, self.width)
        images, labels = self.digits(self.batch_size * self.length, generator)
        tall, wide, room = 24, 12, self.width // self.length
        images = F.interpolate(images[:, None], size=(tall, wide), mode="bilinear", align_corners=False)
        for number, image in enumerate(images):
            line, place = divmod(number, self.length)
            y, x = (int(torch.randint(free + 1, (), generator=generator)) for free in (self.height - tall, room - wide))
            lines[line, :, y : y + tall, place * room + x : place * room + x + wide] = image
        return (lines.expand(-1, 3, -1, -1) - 0.15) * 3, labels.view(self.batch_size, -1) + 1  # 0 is the blank

    def optimizer(self, parameters) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.rate)


class HiddenLetters(RealData, sequence.MaskedWords):
    """A sixth of a text's letters is hidden, other ones each time, and to be told from those around them."""

    length = 32
    rate = 2e-3
    warmup = 30
    first = sequence.END + 1  # the vocabulary's number of byte 0

    def __init__(self, model: sequence.Encoder):
        super().__init__(model, order=False)
        # BERT's initial weights are for its width of 768; in a narrow network they leave attention even for long, and
        # what matters here is the distance of two letters, which sinusoids show from the start.
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                torch.nn.init.xavier_uniform_(module.weight)
            elif isinstance(module, torch.nn.Embedding):
                torch.nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
        places, width = model.positions.weight.shape
        angles = torch.arange(places)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(1000.0) / width))
        with torch.no_grad():
            model.positions.weight.copy_(torch.cat([angles.sin(), angles.cos()], 1) * 0.15)

    @functools.cached_property
    def texts(self) -> tuple[Tensor, Tensor]:
        return corpus.load("documentation")

    def batch(self, generator: Generator) -> Batch:
        text = self.texts[self.held_out]
        starts = torch.randint(len(text) - self.length, (self.batch_size, 1), generator=generator)
        letters = text[starts + torch.arange(self.length)].long().clamp(max=127) + self.first
        hidden = torch.rand(letters.shape, generator=generator) < 1 / 6
        order = torch.zeros(self.batch_size, dtype=torch.long)  # of no use: RoBERTa has no second task
        return letters.masked_fill(hidden, sequence.MASK), letters.masked_fill(~hidden, -100), order


@dataclasses.dataclass
class Lesson:
    """A network on real data: how long it learns, and the bound of which measure it must reach."""

    task: Callable[[], Task]
    steps: int
    batch_size: int
    measure: str
    bound: float
    larger_is_better: bool = True


LESSONS = {
    "resnet18": Lesson(lambda: Digits(classification.NETWORKS["resnet18"]().model, 32, 0.05), 60, 32, "accuracy", 0.9),
    "unet": Lesson(
        lambda: DigitsOnPictures(lambda _: segmentation.own.UNet(2), 32, dice=1.0, rate=0.05), 60, 8, "mean IoU", 0.7
    ),
    "rnet": Lesson(lambda: Faces(detection.face_nets.RNet()), 80, 32, "accuracy", 0.9),
    "edsr": Lesson(lambda: Photographs(generative.super_resolution.EDSR(32, 4)), 200, 8, "PSNR", 25.0),
    "crnn": Lesson(
        lambda: DigitLines(ocr.own.CRNN(10, 64, 16), 32, 56, 4, 2e-3), 560, 32, "wrong characters", 0.1, False
    ),
    "roberta": Lesson(
        lambda: HiddenLetters(sequence.Encoder(128, 4, 2, offset=1)), 1500, 32, "hidden words right", 0.22
    ),
}


def learn(name: str, device: str, seed: int = 0) -> dict:
    """Train one of them; says what it reached and whether that is enough."""
    lesson = LESSONS[name]
    torch.manual_seed(seed)
    task = lesson.task()
    task.batch_size = lesson.batch_size
    began = time.perf_counter()
    outcome = harness.train(task, task.model, device, lesson.steps)
    measured = [harness.evaluate(task, task.model, device, HELD_OUT + n) for n in range(MEASURED_BATCHES)]
    value = sum(m[lesson.measure] for m in measured) / len(measured)
    return {
        "network": name,
        "device": device,
        "measure": lesson.measure,
        "value": value,
        "bound": lesson.bound,
        "enough": value >= lesson.bound if lesson.larger_is_better else value <= lesson.bound,
        "first_loss": outcome.losses[0],
        "last_loss": sum(outcome.losses[-5:]) / len(outcome.losses[-5:]),
        "seconds": time.perf_counter() - began,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=LESSONS, help="may be repeated")
    parser.add_argument("--device", default="npu")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    rows = []
    for name in args.only or LESSONS:
        row = learn(name, args.device)
        rows.append(row)
        if not args.json:
            print(
                f"{name:10}{row['measure']} {row['value']:.3f} (bound {row['bound']}), loss {row['first_loss']:.3f} -> "
                f"{row['last_loss']:.3f}, {row['seconds']:.0f} s{'' if row['enough'] else '  NOT ENOUGH'}",
                flush=True,
            )
    if args.json:
        print(json.dumps(rows))
    return 0 if all(row["enough"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
