"""What a training run shows: the log lines, a bar on a terminal, and a picture of the curves at the end.

Note [Figures stay on the device]
Loss and accuracy of every step are added up on the device. They come to the host only for a line that is printed, in
one copy, so that the host never waits for a step whose figures nobody reads.
"""

import shutil
import sys
import time
from pathlib import Path

import torch


class Window:
    """Mean seconds per batch: since the last printed line (`recent`) and since the start of the pass (`mean`).

    The device works behind the host's back, so one batch's own time means nothing; a printed line waits for the device.
    """

    def __init__(self) -> None:
        self.total = self.recent_total = 0.0
        self.count = self.recent_count = 0

    def add(self, seconds: float) -> None:
        self.total += seconds
        self.recent_total += seconds
        self.count += 1
        self.recent_count += 1

    def read(self) -> tuple[float, float]:
        """(recent, mean) in seconds; starts a new window."""
        recent = self.recent_total / max(self.recent_count, 1)
        self.recent_total, self.recent_count = 0.0, 0
        return recent, self.total / max(self.count, 1)


class Figures:
    """Running loss, Acc@1 and Acc@5 (percent) of a pass, kept as a (3,) fp32 tensor on the device of the loss."""

    def __init__(self) -> None:
        self.last: torch.Tensor | None = None
        self.sums: torch.Tensor | None = None
        self.images = 0

    @torch.no_grad()
    def add(self, loss: torch.Tensor, output: torch.Tensor, target: torch.Tensor) -> None:
        """loss: scalar mean over the batch; output: (N, classes); target: (N,) integer class numbers."""
        batch = target.size(0)
        guesses = output.topk(min(5, output.size(1)), dim=1).indices
        hits = guesses.eq(target.view(-1, 1)).float().sum(0)
        self.last = torch.stack((loss.detach().float() * batch, hits[0] * 100, hits.sum() * 100)) / batch
        weighted = self.last * batch
        self.sums = weighted if self.sums is None else self.sums.add_(weighted)
        self.images += batch

    def read(self) -> tuple[list[float], list[float]]:
        """([loss, acc1, acc5] of the last batch, the same as means of the pass). One copy from the device."""
        if self.last is None or self.sums is None:
            raise RuntimeError("no batch was added: the data set has fewer images than one batch")
        both = torch.stack((self.last, self.sums / self.images)).tolist()
        return both[0], both[1]


class PassLog:
    """Prints `Epoch: [0][10/62]  Time ...  Data ...  Loss ...  Acc@1 ...  Acc@5 ...` every `every` batches."""

    def __init__(self, prefix: str, batches: int, every: int, images_per_batch: int) -> None:
        self.prefix, self.batches, self.every, self.images_per_batch = prefix, batches, every, images_per_batch
        self.batch_time, self.data_time, self.figures = Window(), Window(), Figures()
        self.points: list[tuple[int, float, float]] = []
        self.seconds = 0.0
        self.started = self.mark = time.perf_counter()
        self.bar = Bar()

    def data_arrived(self) -> None:
        self.data_time.add(time.perf_counter() - self.mark)

    def batch_done(self, index: int) -> None:
        shown = index % self.every == 0
        last, mean = self.figures.read() if shown else ([], [])
        now = time.perf_counter()
        self.batch_time.add(now - self.mark)
        self.mark = now
        if shown:
            self.print_line(index, last, mean)
            self.points.append((index, last[0], last[1]))
        self.bar.show(self.prefix, index + 1, self.batches, (index + 1) * self.images_per_batch / (now - self.started))

    def print_line(self, index: int, last: list[float], mean: list[float]) -> None:
        width = len(str(self.batches))
        fields = [f"{self.prefix}[{index:{width}d}/{self.batches}]"]
        for name, window in (("Time", self.batch_time), ("Data", self.data_time)):
            recent, average = window.read()
            fields.append(f"{name} {recent:6.3f} ({average:6.3f})")
        fields.append(f"Loss {last[0]:.4e} ({mean[0]:.4e})")
        fields += [f"Acc@{k} {last[n]:6.2f} ({mean[n]:6.2f})" for k, n in ((1, 1), (5, 2))]
        self.bar.clear()
        print("\t".join(fields), flush=True)

    def close(self) -> list[float]:
        """[loss, acc1, acc5] as means of the pass. Waits for the device, and keeps the pass's duration in `seconds`."""
        self.bar.clear()
        means = self.figures.read()[1]
        self.seconds = time.perf_counter() - self.started
        return means


class Bar:
    """One line that is drawn over itself, on a terminal only, at most ten times a second."""

    def __init__(self) -> None:
        self.enabled = sys.stdout.isatty()
        self.drawn_at = 0.0

    def show(self, title: str, done: int, total: int, images_per_second: float) -> None:
        now = time.perf_counter()
        if not self.enabled or (now - self.drawn_at < 0.1 and done < total):
            return
        self.drawn_at = now
        tail = f" {done}/{total} {images_per_second:.1f} images/s"
        room = shutil.get_terminal_size().columns - len(title) - len(tail) - 4
        filled = max(room, 0) * done // max(total, 1)
        sys.stdout.write(f"\r{title} [{'#' * filled}{'.' * (room - filled)}]{tail}" if room > 4 else f"\r{title}{tail}")
        sys.stdout.flush()

    def clear(self) -> None:
        if self.enabled:
            sys.stdout.write("\r\033[K")
            sys.stdout.flush()


def save_curves(history: dict[str, list], path: Path) -> str:
    """Draws the run's loss and accuracy to `path` (PNG). Returns the line to print: where it is, or why it is not.

    history: `steps`, rows of (epoch as a fraction, loss, acc1) of the training; `epochs`, rows of (epoch, loss, acc1)
    of the validation after each.
    """
    if not history["steps"] and not history["epochs"]:
        return f"=> no curves to draw: {path} not written"
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return f"=> {path} not written: matplotlib is not installed (pip install matplotlib)"
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for column, (name, row) in enumerate((("loss", 1), ("top-1 accuracy, %", 2))):
        axes = figure.add_subplot(1, 2, column + 1)
        for key, label, style in (("steps", "training batch", "-"), ("epochs", "held-out images", "o-")):
            axes.plot([point[0] for point in history[key]], [point[row] for point in history[key]], style, label=label)
        axes.set(xlabel="epoch", ylabel=name)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)
    return f"=> curves of loss and accuracy: {path}"
