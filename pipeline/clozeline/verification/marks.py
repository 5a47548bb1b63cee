"""Units on rows: where they stand, which are selected, and with what probability they should be.

Shapes: R rows of T positions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.mask_function import IGNORE
from clozeline.mask_function.units import Units, find_units

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.mask_function import MaskRule, MaskVocabulary


class Marks:
    """Where units stand in some rows, which of them are selected, and with what probability they should be.

    What a cap leaves of words and spans depends on their lengths. Under a cap the units are therefore those of a single token,
    which are all alike, and the row's own share of them stands for the probability.

    Attributes:
        units, selected: bool (R, T), at first positions.
        first, at: flat positions of the units and of the selected ones.
        per_row, chosen: int64 (R,), how many of each.
        chance: float64 (R,), pi of each row's units.
        maskable: int64 (R,), positions of each row that may be selected.
        found: the units themselves; None where they are tokens. words: those that spans are made of.
    """

    __slots__ = ("at", "chance", "chosen", "first", "found", "maskable", "per_row", "selected", "units", "words")

    def __init__(
        self,
        original: NDArray[Any],
        labels: NDArray[Any],
        rule: MaskRule,
        vocabulary: MaskVocabulary,
        word_starts: NDArray[Any] | None,
        span_words: NDArray[np.uint64] | None,
        *,
        own_share: bool,
    ) -> None:
        rows, length = original.shape
        if rule.unit == "token":
            self.found = None
            self.units = vocabulary.maskable[original]
            self.first = np.flatnonzero(self.units)
        else:
            self.found = find_units(original, rule, vocabulary, word_starts=word_starts, span_words=span_words)
            self.first = self.found.first
            if rule.max_predictions is not None:
                own_share = True
                self.first = self.first[self.found.tokens == 1]
            self.units = np.zeros(original.shape, bool)
            self.units.reshape(-1)[self.first] = True
        self.words: Units | None = None
        if rule.unit == "span":
            self.words = find_units(original, replace(rule, unit="word"), vocabulary, word_starts=word_starts)
        self.selected = self.units & (labels != IGNORE)
        self.at = np.flatnonzero(self.selected)
        limits = np.arange(rows + 1) * length
        self.per_row = np.diff(np.searchsorted(self.first, limits))
        self.chosen = np.diff(np.searchsorted(self.at, limits))
        self.maskable = self.per_row if self.found is None else self.found.maskable
        if own_share:
            self.chance = self.chosen / np.maximum(self.per_row, 1)
        else:
            rates = {n: rule.expected(n) / n if n else 0.0 for n in np.unique(self.maskable).tolist()}
            self.chance = np.array([rates[n] for n in self.maskable.tolist()])
