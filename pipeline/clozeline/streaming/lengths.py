"""An order for rows of several lengths: every global batch has rows of one length, so that nothing is padded beyond it.

The same length on all ranks at each step: no rank waits for another's longer rows.

Shapes: P positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from clozeline.errors import ConfigError
from clozeline.streaming.order import LENGTH_BATCHES, LENGTH_ROWS, order_keys, permute

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class LengthOrder:
    """The order of the global batches, and of the rows of each length, under a seed; epoch by epoch another.

    Attributes:
        lengths: int64 (K,), L of the rows of each file; counts: int64 (K,), how many it has. Rows are numbered file by file.
        global_batch: G, rows in a batch of all ranks together.
        seed: 0 to 2**64 - 1.

    Rows that do not fill a batch of their length (fewer than G of each) are not seen in an epoch; each time they are others.
    """

    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    global_batch: int
    seed: int
    shuffle: str = "lengths"

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed is {self.seed}: it lies between 0 and 2**64 - 1")

    @cached_property
    def _bins(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For each length, ascending: where its files' rows begin in the numbering, and where they end among its own rows."""
        lengths, counts = np.array(self.lengths, np.int64), np.array(self.counts, np.int64)
        starts = np.cumsum(counts) - counts
        return [
            (starts[lengths == length], np.cumsum(counts[lengths == length])) for length in np.unique(lengths).tolist()
        ]

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Full batches of each length, summed up."""
        return np.cumsum([int(ends[-1]) // self.global_batch for _, ends in self._bins], dtype=np.int64)

    @property
    def count(self) -> int:
        """Rows in an epoch: a whole number of global batches."""
        return int(self._ends[-1]) * self.global_batch if len(self._ends) else 0

    def rows(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows at these positions of an epoch: int64 (P,)."""
        batch, place = np.divmod(positions, self.global_batch)
        batch = permute(batch, int(self._ends[-1]), order_keys(self.seed, epoch, LENGTH_BATCHES))
        bins = np.searchsorted(self._ends, batch, side="right")
        found = np.empty_like(positions)
        for number in np.unique(bins).tolist():
            here = np.flatnonzero(bins == number)
            before = int(self._ends[number - 1]) if number else 0
            starts, ends = self._bins[number]
            of_length = (batch[here] - before) * self.global_batch + place[here]
            of_length = permute(of_length, int(ends[-1]), order_keys(self.seed, epoch, LENGTH_ROWS, number))
            file = np.searchsorted(ends, of_length, side="right")
            found[here] = starts[file] + of_length - np.where(file > 0, ends[file - 1], 0)
        return found
