"""Walking through many rows in blocks that hold about the same number of values, however wide a row is."""

from collections.abc import Iterator

__all__ = ["VALUES_AT_ONCE", "rows_at_once", "slices"]

VALUES_AT_ONCE = 4_000_000  # 32 MB in float64


def rows_at_once(values_per_row: int) -> int:
    """Number of rows in a block, at least one."""
    return max(1, VALUES_AT_ONCE // max(1, values_per_row))


def slices(n_rows: int, values_per_row: int) -> Iterator[slice]:
    """Slices that cover all rows in order, one per block."""
    step = rows_at_once(values_per_row)
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))
