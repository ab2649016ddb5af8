"""Keys and values of what was read already: in memory reserved for the longest text, or in blocks taken as needed.

Both number the places ("slots") in which a position of a sequence lies. A step is announced by `advance`, which says
where the next positions of each sequence are; then each layer writes its keys and values, and gets all there are.
Sequences of one batch may have different lengths: what lies behind a sequence's end is hidden and written over later.
"""

from llama import Config

import torch
from torch import Tensor


class _Cache:
    """What both forms share: `positions` (batch, steps) and `visible` (batch, 1, steps, keys) of the step announced."""

    positions: Tensor
    visible: Tensor

    def __init__(self, config: Config, slots: int, device: str | torch.device, dtype: torch.dtype) -> None:
        shape = (config.layers, slots, config.key_heads, config.width // config.heads)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        self.device, self.length = self.keys.device, config.length

    @property
    def bytes(self) -> int:
        """Memory of all keys and values."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def _announce(self, lengths: list[int], steps: int, keys: int) -> Tensor:
        """Sets `positions` and `visible`; gives the positions in host memory."""
        if max(lengths) + steps > self.length:
            raise ValueError(f"{max(lengths) + steps} positions, but the model has {self.length}")
        positions = torch.tensor(lengths).unsqueeze(1) + torch.arange(steps)
        self.positions = positions.to(self.device)
        order = torch.arange(keys, device=self.device)
        self.visible = (order <= self.positions.unsqueeze(-1)).unsqueeze(1)
        return positions

    def _write(self, layer: int, k: Tensor, v: Tensor, slots: Tensor) -> None:
        for memory, new in ((self.keys, k), (self.values, v)):
            memory[layer].index_copy_(0, slots, new.transpose(1, 2).flatten(0, 1))


class StaticCache(_Cache):
    """`capacity` places for each of `batch` sequences, from the start: every step has the same shapes."""

    def __init__(self, config: Config, batch: int, capacity: int, device, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(config, batch * capacity, device, dtype)
        self.batch, self.capacity = batch, capacity

    def advance(self, lengths: list[int], steps: int) -> None:
        """The next `steps` positions of each sequence follow on its first `lengths` ones."""
        if max(lengths) + steps > self.capacity:
            raise ValueError(f"{max(lengths) + steps} positions, but the cache has {self.capacity}")
        positions = self._announce(lengths, steps, self.capacity)
        rows = torch.arange(self.batch).unsqueeze(1)
        self.slots = (rows * self.capacity + positions).flatten().to(self.device)

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes (batch, heads, steps, width), gives (batch, heads, capacity, width)."""
        self._write(layer, k, v, self.slots)
        return tuple(m[layer].unflatten(0, (self.batch, -1)).transpose(1, 2) for m in (self.keys, self.values))


class PagedCache(_Cache):
    """A pool of `blocks` blocks of `size` places; a sequence takes one when its last one is full, and gives all back.

    The blocks of a sequence lie anywhere in the pool; its row of `table` names them in order.
    """

    def __init__(self, config: Config, blocks: int, size: int, device, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(config, blocks * size, device, dtype)
        self.size = size
        self.free = list(range(blocks))
        self.table: dict[int, list[int]] = {}

    @property
    def used(self) -> int:
        """Blocks that sequences hold."""
        return sum(map(len, self.table.values()))

    def advance(self, lengths: list[int], steps: int) -> None:
        """As StaticCache's. Sequences are numbered by their places in `lengths`.

        Raises:
            MemoryError: no block is free; nothing was taken.
        """
        wanted = {n: -(-(length + steps) // self.size) for n, length in enumerate(lengths)}
        missing = sum(max(count - len(self.table.get(n, [])), 0) for n, count in wanted.items())
        if missing > len(self.free):
            raise MemoryError(f"{missing} blocks are wanted, {len(self.free)} of the pool are free")
        for n, count in wanted.items():
            held = self.table.setdefault(n, [])
            held.extend(self.free.pop() for _ in range(count - len(held)))
        longest = max(wanted.values())
        positions = self._announce(lengths, steps, longest * self.size)
        blocks = torch.tensor([(self.table[n] + [0] * longest)[:longest] for n in range(len(lengths))])
        every = (blocks.unsqueeze(-1) * self.size + torch.arange(self.size)).flatten(1)
        self.slots = every.gather(1, positions).flatten().to(self.device)
        self.every, self.batch = every.flatten().to(self.device), len(lengths)

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes (batch, heads, steps, width), gives (batch, heads, places of the longest sequence's blocks, width)."""
        self._write(layer, k, v, self.slots)
        found = (m[layer].index_select(0, self.every) for m in (self.keys, self.values))
        return tuple(m.unflatten(0, (self.batch, -1)).transpose(1, 2) for m in found)

    def release(self, sequence: int) -> None:
        """Gives the blocks of a sequence back to the pool."""
        self.free.extend(self.table.pop(sequence, []))
