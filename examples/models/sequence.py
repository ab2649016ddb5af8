"""Sequences of words: GRU (translation), ALBERT and RoBERTa (masked words).

Generated sentences that follow a rule of succession, so that a word can be guessed from its neighbours.
"""

import random
from collections.abc import Callable

import torch.nn.functional as F
from generated import sentences
from harness import Batch, Task, main

import torch
from torch import Generator, Tensor, nn

WORDS = 200
PAD, START, MASK, END = range(4)  # the first words of the vocabulary


class Attention(nn.Module):
    """Additive attention: which of the source's states (batch, time, 2h) matter for a decoder's state (batch, h)."""

    def __init__(self, hidden: int):
        super().__init__()
        self.score = nn.Linear(3 * hidden, hidden)
        self.value = nn.Linear(hidden, 1, bias=False)

    def forward(self, state: Tensor, source: Tensor) -> Tensor:
        both = torch.cat([state[:, None].expand(-1, source.shape[1], -1), source], 2)
        weights = self.value(self.score(both).tanh()).softmax(1)
        return (weights * source).sum(1)


class GRUTranslator(nn.Module):
    """A bidirectional GRU reads, a GRU cell with attention writes.

    Sources (batch, time) and targets (batch, time) that begin with START -> scores (batch, time - 1, words). With a
    probability of ``forcing`` the next input is the target's word, else the guessed one, as Python's generator decides.
    """

    def __init__(self, width: int = 128, hidden: int = 128, forcing: float = 0.5):
        super().__init__()
        self.words_in, self.words_out = nn.Embedding(WORDS, width), nn.Embedding(WORDS, width)
        self.reader = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * hidden, hidden)
        self.attention = Attention(hidden)
        self.writer = nn.GRUCell(width + 2 * hidden, hidden)
        self.head = nn.Linear(3 * hidden + width, WORDS)
        self.dropout = nn.Dropout(0.5)
        self.forcing = forcing

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        read, last = self.reader(self.dropout(self.words_in(source)))
        state = self.bridge(torch.cat([last[0], last[1]], 1)).tanh()
        word, scores = target[:, 0], []
        choice = random.Random(source.shape[1])
        for place in range(1, target.shape[1]):
            embedded = self.dropout(self.words_out(word))
            context = self.attention(state, read)
            state = self.writer(torch.cat([embedded, context], 1).to(state.dtype), state)
            scores.append(self.head(torch.cat([state, context, embedded], 1)))
            forced = self.training and choice.random() < self.forcing
            word = target[:, place] if forced else scores[-1].argmax(1)
        return torch.stack(scores, 1)


class Translation(Task):
    """The target is the source with every word replaced by its partner, backwards."""

    batch_size = 16
    rate = 0.1
    length = 10

    def __init__(self):
        self.model = GRUTranslator()

    def batch(self, generator: Generator) -> Batch:
        source = sentences(self.batch_size, self.length, WORDS, generator)
        partner = (source.flip(1) * 7 + 1) % (WORDS - 4) + 4
        edge = torch.ones(self.batch_size, 1, dtype=torch.long)
        return source, torch.cat([START * edge, partner, END * edge], 1)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(*batch).flatten(0, 1), batch[1][:, 1:].flatten())

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        return {"words right": (model(*batch).argmax(2) == batch[1][:, 1:]).float().mean()}


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer, each added and normalised afterwards, as BERT has it."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.dropout = nn.Dropout(0.1)
        self.heads = heads

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = self.norms[0](x + self.dropout(self.out(attended.transpose(1, 2).flatten(2))))
        return self.norms[1](x + self.dropout(self.narrow(F.gelu(self.wide(x)))))


class Encoder(nn.Module):
    """BERT's encoder with what ALBERT and RoBERTa change.

    ``shared`` uses one layer's parameters at every depth, ``factor`` embeds words in fewer dimensions (both ALBERT);
    ``offset`` is where positions begin (RoBERTa counts from the padding's index on). Tokens (batch, time) -> scores
    (batch, time, words) and scores of the order of both halves (batch, 2).
    """

    def __init__(
        self, width: int, heads: int, depth: int, shared: bool = False, factor: int | None = None, offset: int = 0
    ):
        super().__init__()
        narrow = factor or width
        self.words = nn.Embedding(WORDS, narrow, padding_idx=PAD)
        self.positions, self.segments = nn.Embedding(64 + offset, narrow), nn.Embedding(2, narrow)
        self.norm = nn.LayerNorm(narrow, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.widen = nn.Linear(narrow, width) if factor else nn.Identity()
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(1 if shared else depth))
        self.transform = nn.Sequential(nn.Linear(width, narrow), nn.GELU(), nn.LayerNorm(narrow, eps=1e-12))
        self.bias = nn.Parameter(torch.zeros(WORDS))
        self.order = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
        self.depth, self.offset = depth, offset
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        time = tokens.shape[1]
        place = torch.arange(time, device=tokens.device)
        x = self.words(tokens) + self.positions(place + self.offset) + self.segments((place >= time // 2).long())
        x = self.widen(self.dropout(self.norm(x)))
        seen = (tokens != PAD)[:, None, None, :]
        for level in range(self.depth):
            x = self.layers[level % len(self.layers)](x, seen)
        # The words' vectors are also the classifier of the hidden words.
        return F.linear(self.transform(x), self.words.weight, self.bias), self.order(x[:, 0])


class MaskedWords(Task):
    """A sixth of the words is hidden, other ones each time (RoBERTa); ``order``: which half came first (ALBERT)."""

    batch_size = 8
    rate = 1e-3
    length = 32

    def __init__(self, model: nn.Module, order: bool):
        self.model, self.order = model, order

    def batch(self, generator: Generator) -> Batch:
        words = sentences(self.batch_size, self.length, WORDS, generator)
        swapped = torch.randint(2, (self.batch_size,), generator=generator)
        if self.order:
            words = torch.where(swapped[:, None] == 1, words.roll(self.length // 2, 1), words)
        tail = self.length - torch.randint(0, 6, (self.batch_size, 1), generator=generator)
        words = words.masked_fill(torch.arange(self.length) >= tail, PAD)
        hidden = (torch.rand(words.shape, generator=generator) < 1 / 6) & (words != PAD)
        return words.masked_fill(hidden, MASK), words.masked_fill(~hidden, -100), swapped

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        tokens, wanted, swapped = batch
        scores, order = model(tokens)
        loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=-100)
        if self.order:
            loss = loss + F.cross_entropy(order, swapped)
        return loss

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        scores, _ = model(batch[0])
        hidden = batch[1] >= 0
        right = ((scores.argmax(2) == batch[1]) & hidden).sum() / hidden.sum()
        return {"hidden words right": right}

    def optimizer(self, parameters) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=self.rate, eps=1e-6)


NETWORKS: dict[str, Callable[[], Task]] = {
    "gru": Translation,
    "albert": lambda: MaskedWords(Encoder(256, 4, 6, shared=True, factor=64), order=True),
    "roberta": lambda: MaskedWords(Encoder(256, 4, 4, offset=1), order=False),
}

if __name__ == "__main__":
    main(NETWORKS, __doc__)
