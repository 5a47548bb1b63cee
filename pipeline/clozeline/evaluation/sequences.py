"""What the model reads: rows without their padding, or each document of a row on its own.

A sequence is a stretch of a row. Sequences of near length are computed together, so that little padding is; as each begins at
position 0 and sees nothing but itself, a document of a packed row gets the loss that it has alone. That holds for any model: with
absolute, relative or rotary positions, with windows, with any implementation of attention.

Shapes: B rows of L positions, S sequences in them, N selected tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sequences:
    """Stretches of rows.

    Attributes:
        rows, starts, lengths: int64 (S,): the row within the batch, the first position and the number of positions.
    """

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def cut(self, values: NDArray[Any], chosen: NDArray[np.int64], fill: int) -> NDArray[Any]:
        """Some sequences side by side.

        Args:
            values: (B, L).
            chosen: int64 (C,), indices of sequences.
            fill: what stands behind the shorter ones.

        Returns:
            (C, length of the longest).
        """
        lengths = self.lengths[chosen][:, None]
        place = np.arange(lengths.max(initial=0))
        position = np.minimum(self.starts[chosen][:, None] + place, values.shape[1] - 1)
        return np.where(place < lengths, values[self.rows[chosen][:, None], position], fill)


def whole_rows(there: NDArray[np.bool_]) -> Sequences:
    """One sequence for each row, up to its last position that is there.

    Args:
        there: (B, L).
    """
    count, width = there.shape
    lengths = np.where(there.any(axis=1), width - there[:, ::-1].argmax(axis=1), 0)
    return Sequences(np.arange(count), np.zeros(count, np.int64), lengths.astype(np.int64))


def documents_of(lengths: NDArray[Any]) -> Sequences:
    """One sequence for each document.

    Args:
        lengths: (B, M), tokens of each document of each row, filled up with 0.
    """
    rows, slot = np.nonzero(lengths)
    ends = np.cumsum(lengths, axis=1, dtype=np.int64)[rows, slot]
    tokens = lengths[rows, slot].astype(np.int64)
    return Sequences(rows, ends - tokens, tokens)


def in_turn(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order in which to compute: longest first, equally long ones as they come. What does not fit into memory shows at once."""
    return np.argsort(-lengths, kind="stable")


def take(lengths: NDArray[np.int64], first: int, positions: int) -> int:
    """How many sequences go together from the `first` on, at least one.

    As many as make no more than `positions` when filled up; but once there is a quarter of that, none that is shorter than three
    quarters of the longest: then padding would cost more than another part does.

    Args:
        lengths: int64 (S,), longest first.
    """
    longest = max(1, int(lengths[first]))
    near = int(np.searchsorted(-lengths, -0.75 * longest, side="right")) - first
    most = min(len(lengths) - first, max(1, positions // longest))
    return min(most, max(near, -(-positions // (4 * longest))))
