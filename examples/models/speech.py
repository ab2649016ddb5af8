"""Speech: an LSTM acoustic model that hears phonemes, learned by CTC.

Generated utterances: each phoneme is a few frames of its own spectrum, in noise.
"""

from collections.abc import Callable

from harness import Batch, Task, main
from losses import CTC, symbol_errors

import torch
from torch import Generator, Tensor, nn

PHONEMES = 20
BANDS = 40


class AcousticLSTM(nn.Module):
    """Four bidirectional LSTM layers with batch normalisation between them.

    Spectra (batch, time, bands) -> scores (time, batch, phonemes + 1).
    """

    def __init__(self, hidden: int = 128, layers: int = 4):
        super().__init__()
        widths = [BANDS] + [2 * hidden] * (layers - 1)
        self.norms = nn.ModuleList(nn.BatchNorm1d(w) for w in widths[1:])
        self.layers = nn.ModuleList(nn.LSTM(w, hidden, bidirectional=True, bias=False) for w in widths)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Sequential(nn.BatchNorm1d(2 * hidden), nn.Linear(2 * hidden, PHONEMES + 1, bias=False))

    def forward(self, spectra: Tensor) -> Tensor:
        x = spectra.transpose(0, 1)
        for level, layer in enumerate(self.layers):
            if level:
                x = self.norms[level - 1](x.flatten(0, 1)).unflatten(0, x.shape[:2])
            x = self.dropout(layer(x)[0])
        return self.head(x.flatten(0, 1)).unflatten(0, x.shape[:2])


class Speech(Task):
    batch_size = 8
    rate = 0.02
    length, frames = 6, 6

    def __init__(self):
        self.model, self.ctc = AcousticLSTM(), CTC()
        self.spectra = torch.randn(PHONEMES + 1, BANDS, generator=Generator().manual_seed(5))

    def batch(self, generator: Generator) -> Batch:
        labels = torch.randint(1, PHONEMES + 1, (self.batch_size, self.length), generator=generator)
        heard = self.spectra[labels].repeat_interleave(self.frames, 1)
        loudness = 0.7 + 0.6 * torch.rand(self.batch_size, 1, 1, generator=generator)
        return heard * loudness + 0.5 * torch.randn(heard.shape, generator=generator), labels

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.ctc(model(batch[0]), batch[1])

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return {"wrong phonemes": symbol_errors(model(batch[0]), batch[1])}


NETWORKS: dict[str, Callable[[], Task]] = {"lstm": Speech}

if __name__ == "__main__":
    main(NETWORKS, __doc__)
