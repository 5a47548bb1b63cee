"""What masking must know of a vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class MaskVocabulary:
    """What masking must know of a vocabulary.

    Attributes:
        mask_id: the id of the mask token.
        special_ids: ids that are never selected; they end words and spans.
        ordinary_ids: int64 (N,), sorted: the ids that a random replacement may take. Holes in the vocabulary are in
            neither.
        continuing: bool, by id: continues the word before it. None where the vocabulary does not say.
        counts: int64 (N,), how often each ordinary id occurs, where replacements are drawn by frequency.
    """

    mask_id: int
    special_ids: tuple[int, ...]
    ordinary_ids: NDArray[np.int64]
    continuing: NDArray[np.bool_] | None = None
    counts: NDArray[np.int64] | None = None

    @cached_property
    def maskable(self) -> NDArray[np.bool_]:
        """bool (largest id + 1,): False for special ids."""
        size = 0 if self.continuing is None else len(self.continuing)
        largest = max(self.mask_id, size - 1, *self.special_ids, int(self.ordinary_ids.max(initial=0)))
        table = np.ones(largest + 1, bool)
        table[list(self.special_ids)] = False
        return table

    @cached_property
    def frequency_limits(self) -> NDArray[np.uint64]:
        """uint64 (N,): a 32-bit draw below the i-th limit, and not below the one before, means the i-th ordinary id.

        Raises:
            ValueError: no counts are known.
        """
        if self.counts is None:
            raise ValueError("no counts of ids to draw by")
        sums = np.cumsum(self.counts, dtype=np.int64)
        return np.floor(sums / float(sums[-1]) * 2.0**32).astype(np.uint64)

    @cached_property
    def draw_probabilities(self) -> NDArray[np.float64]:
        """float64 (largest id + 1,): with what probability a random replacement is each id."""
        table = np.zeros(len(self.maskable))
        if self.counts is None:
            table[self.ordinary_ids] = 1.0 / len(self.ordinary_ids)
        else:
            table[self.ordinary_ids] = np.diff(self.frequency_limits.astype(np.float64), prepend=0.0) / 2.0**32
        return table
