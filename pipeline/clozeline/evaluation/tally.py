"""Sums that do not depend on the order of their terms.

Floating-point addition does: the same losses added by another number of processes, in another batch size or after a restart
give another last digit. Here a loss is an integer multiple of 2**-48 nats (4e-15; float64 itself is no finer from 16 nats
up), kept as two int64 limbs. Integers add exactly, so any grouping gives the same bits, and a mean is rounded once, at the end.

Shapes: N selected tokens, G groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LIMB = 24  # bits of the low limb
_FRACTION = 48
LARGEST = 2.0**30  # nats; a loss above it is as good as infinite, and would not fit


class TokenScores(NamedTuple):
    """What a model makes of N selected tokens.

    Attributes:
        loss: float64 (N,), -log P of the original token, in nats.
        above: int64 (N,), how many other tokens have at least its logit, counted up to 5: ties count against the model.
    """

    loss: NDArray[np.float64]
    above: NDArray[np.int64]


class Tally:
    """Counts and loss sums by group.

    Attributes:
        count, top1, top5: int64 (G,), tokens, and those of them whose original token is the model's first choice or among its
            first five.
        high, low: int64 (G,), the sum of the losses is (high * 2**24 + low) * 2**-48 nats. Room for 5e11 nats.
        not_finite: int64 (G,), tokens whose loss is NaN or infinite; they are in `count`, not in the sum.
    """

    COLUMNS = ("count", "high", "low", "top1", "top5", "not_finite")

    def __init__(self, groups: int) -> None:
        self.table = np.zeros((len(self.COLUMNS), groups), np.int64)

    def __getattr__(self, name: str) -> NDArray[np.int64]:
        if name not in self.COLUMNS:
            raise AttributeError(name)
        column: NDArray[np.int64] = self.table[self.COLUMNS.index(name)]
        return column

    def add(self, groups: NDArray[np.integer[Any]], scores: TokenScores) -> None:
        """Adds tokens.

        Args:
            groups: (N,), the group of each, at least 0; the table grows when needed.
        """
        if not len(groups):
            return
        missing = int(groups.max()) + 1 - self.table.shape[1]
        if missing > 0:
            self.table = np.pad(self.table, ((0, 0), (0, missing)))
        finite = np.isfinite(scores.loss) & (scores.loss <= LARGEST)
        fixed = np.rint(np.where(finite, scores.loss, 0.0) * 2.0 ** (_FRACTION - _LIMB) * 2.0**_LIMB)
        high = np.floor(fixed * 2.0**-_LIMB)
        low = fixed - high * 2.0**_LIMB
        values = (1, high.astype(np.int64), low.astype(np.int64), scores.above < 1, scores.above < 5, ~finite)
        for column, value in zip(self.table, values, strict=True):
            np.add.at(column, groups, np.asarray(value, np.int64))

    def merge(self, table: NDArray[np.int64]) -> None:
        """Adds another tally's table."""
        wide = max(table.shape[1], self.table.shape[1])
        merged = np.zeros((len(self.COLUMNS), wide), np.int64)
        merged[:, : self.table.shape[1]] = self.table
        merged[:, : table.shape[1]] += table
        self.table = merged

    def collected(self, groups: NDArray[np.integer[Any]], count: int) -> Tally:
        """Coarser groups: the g-th here becomes part of groups[g] of `count`."""
        coarse = Tally(count)
        for column, fine in zip(coarse.table, self.table, strict=True):
            np.add.at(column, groups, fine)
        return coarse

    def total(self) -> Tally:
        return self.collected(np.zeros(self.table.shape[1], np.int64), 1)

    def sums(self) -> NDArray[np.float64]:
        """float64 (G,), summed losses in nats, correctly rounded; NaN where any loss is not finite."""
        return self._divided([1] * self.table.shape[1])

    def means(self) -> NDArray[np.float64]:
        """float64 (G,), mean losses in nats, correctly rounded; NaN for empty groups and where any loss is not finite."""
        return self._divided(self.count.tolist())

    def _divided(self, divisors: list[int]) -> NDArray[np.float64]:
        # Python's integers are exact and their quotient is correctly rounded.
        sums = (high * 2**_LIMB + low for high, low in zip(self.high.tolist(), self.low.tolist(), strict=True))
        bad = self.not_finite.tolist()
        quotients = [
            float("nan") if b or not n else s / (n << _FRACTION) for s, n, b in zip(sums, divisors, bad, strict=True)
        ]
        return np.array(quotients, np.float64)
