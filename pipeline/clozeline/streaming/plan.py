"""Who gets which positions of an epoch: global batches, ranks, and what becomes of the rest.

Global batch g holds positions g * G to (g + 1) * G - 1 of the epoch, whatever the number of ranks; rank r takes the r-th part.
Shapes: B rows per batch and rank, W ranks, G = B * W.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from clozeline.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Tail = Literal["drop", "pad", "even"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochPlan:
    """How one epoch is cut into batches, the same number on every rank.

    Attributes:
        rows: N, in the epoch.
        batch_rows: B.
        rank, world_size: which part of each global batch is ours.
        tail: what becomes of the last N mod G rows. "drop": they are not seen in this epoch. "pad": one more global batch, filled
            up with padding rows. "even": one more global batch, spread evenly, with one padding row on the ranks that have
            one row less than others (at most W - 1).
        start: rows of the epoch that were seen before.
    """

    rows: int
    batch_rows: int
    rank: int = 0
    world_size: int = 1
    tail: Tail = "drop"
    start: int = 0

    def __post_init__(self) -> None:
        if self.tail not in ("drop", "pad", "even"):
            raise ConfigError(f"tail is {self.tail!r}: use 'drop', 'pad' or 'even'")
        if self.batch_rows < 1:
            raise ConfigError(f"batch_size is {self.batch_rows}: at least 1 row is needed")
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(f"rank is {self.rank} of {self.world_size}: ranks count from 0 to world_size - 1")

    @property
    def global_batch(self) -> int:
        """G: rows in a batch of all ranks together."""
        return self.batch_rows * self.world_size

    @property
    def left(self) -> int:
        return max(0, self.rows - self.start)

    @property
    def whole(self) -> int:
        """Full global batches."""
        return self.left // self.global_batch

    @property
    def rest(self) -> int:
        """Rows after the last full global batch."""
        return self.left % self.global_batch

    @property
    def batches(self) -> int:
        return self.whole + (self.rest > 0 and self.tail != "drop")

    @property
    def last_rows(self) -> int:
        """Rows per rank in the last global batch, padding included."""
        if not self.rest or self.tail == "drop":
            return self.batch_rows
        return self.batch_rows if self.tail == "pad" else -(-self.rest // self.world_size)

    @property
    def dropped(self) -> int:
        """Rows that no rank sees in this epoch."""
        return self.rest if self.tail == "drop" else 0

    @property
    def padded(self) -> int:
        """Padding rows, all ranks together."""
        return self.last_rows * self.world_size - self.rest if self.rest and self.tail != "drop" else 0

    def positions(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of full batches of this rank: int64 (len(indices), B)."""
        first = self.start + self.rank * self.batch_rows + indices * self.global_batch
        return first[:, None] + np.arange(self.batch_rows)

    def last_positions(self) -> NDArray[np.int64]:
        """The positions of the batch after the full ones, on this rank: int64 (last_rows,), -1 for padding."""
        first = self.start + self.whole * self.global_batch
        if self.tail == "pad":
            at = first + self.rank * self.batch_rows + np.arange(self.batch_rows)
            return np.where(at < self.rows, at, -1)
        low, high = (self.rest * r // self.world_size for r in (self.rank, self.rank + 1))
        at = np.full(self.last_rows, -1, np.int64)
        at[: high - low] = np.arange(first + low, first + high)
        return at
