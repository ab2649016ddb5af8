r"""The table of torch.npu.memory_summary(), apart because only people who look at it load it."""

from typing import Any

_BYTES = (
    ("allocated_bytes", "Allocated memory"),
    ("active_bytes", "Active memory"),
    ("requested_bytes", "Requested memory"),
    ("reserved_bytes", "NPU reserved memory"),
    ("inactive_split_bytes", "Non-releasable memory"),
)
_COUNTS = (
    ("allocation", "Allocations"),
    ("active", "Active allocs"),
    ("segment", "NPU reserved segments"),
    ("inactive_split", "Non-releasable allocs"),
)
_POOLS = (("all", None), ("large_pool", "from large pool"), ("small_pool", "from small pool"))
_OVERSIZE = (("oversize_allocations", "Oversize allocations"), ("oversize_segments", "Oversize NPU segments"))
_COLUMNS = ("current", "peak", "allocated", "freed")
_WIDTH = 75


def _bytes(value: int, scale: int) -> str:
    # The unit follows the row group's first value, so that the pools below it can be compared with it.
    units = ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = 0
    while power + 1 < len(units) and scale >= 768 * 1024:
        power, scale, value = power + 1, scale // 1024, value // 1024
    return f"{value:6d} {units[power]}"


def _count(value: int, scale: int) -> str:
    units = (" ", "K", "M")
    power = 0
    while power + 1 < len(units) and scale >= 750 * 1000:
        power, scale, value = power + 1, scale // 1000, value // 1000
    return f"{value:7d} {units[power]} "


def format_memory_summary(stats: dict[str, Any], device: int, abbreviated: bool) -> str:
    r"""Return the table for the counters of one device, as ``memory_stats`` gives them."""
    rows = [
        "=" * _WIDTH,
        f"PyTorch NPU memory summary, device ID {device}".center(_WIDTH),
        "-" * _WIDTH,
        f"NPU OOMs: {stats.get('num_ooms', 0)}".center(_WIDTH // 2)
        + "|"
        + f"malloc retries: {stats.get('num_alloc_retries', 0)}".center(_WIDTH // 2),
        "=" * _WIDTH,
        "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ",
    ]

    def add(title: str, prefix: str, write: Any, scales: list[int] | None) -> list[int]:
        values = [stats.get(f"{prefix}.{column}", 0) for column in _COLUMNS]
        scales = scales or values
        cells = " | ".join(write(value, scale) for value, scale in zip(values, scales, strict=True))
        rows.append(f" {title:<21} | {cells} ")
        return scales

    for metrics, write in ((_BYTES, _bytes), (_COUNTS, _count)):
        for key, title in metrics:
            rows.append("-" * _WIDTH)
            scales = None
            for pool, subtitle in _POOLS[:1] if abbreviated else _POOLS:
                scales = add(f"      {subtitle}" if subtitle else title, f"{key}.{pool}", write, scales)
    for key, title in _OVERSIZE:
        rows.append("-" * _WIDTH)
        add(title, key, _count, None)
    rows.append("=" * _WIDTH)
    return "".join(f"|{row}|\n" for row in rows)
