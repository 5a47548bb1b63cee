"""Counts of masked rows, from which every statistic is computed: one pass, constant memory, and two tallies add up.

The unit of chance is the unit of selection: a token, a word or a span. It stands at its first position; pi is the probability
with which the scheme selects it, which may differ from row to row (an exact count of a short row, a copy's own rate).

Shapes: R rows of T positions, V vocabulary, U units.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.mask_function import IGNORE
from clozeline.mask_function.units import find_units
from clozeline.verification.sketch import Sketch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.mask_function import MaskRule, MaskVocabulary

EDGE = 16  # units at each end of a row
ID_BINS = 64
POOLED_VARIANCE = 10.0  # rows are put together until their counts have this variance
MAX_TOKENS = 32  # unit lengths from here on are counted together


@dataclass(slots=True)
class Pairs:
    """Units whose fellow is selected too: `hits` of `trials`, `expected` if they are independent."""

    trials: int = 0
    hits: int = 0
    expected: float = 0.0

    def see(self, first: NDArray[np.bool_], second: NDArray[np.bool_], chance: NDArray[np.float64]) -> None:
        """Adds rows: where a unit is selected in `first`, is it in `second`?

        Args:
            first: bool (R, T), selected.
            second: bool (R, T), selected.
            chance: float (R, T) or (R, 1): pi of the unit of `second` there, 0 where none stands.
        """
        trials = first & (chance > 0)
        self.trials += int(trials.sum())
        self.hits += int((trials & second).sum())
        self.expected += float((trials * chance).sum())

    def update(self, other: Pairs) -> None:
        self.trials += other.trials
        self.hits += other.hits
        self.expected += other.expected


class Marks:
    """Where units stand in some rows, which of them are selected, and with what probability they should be.

    Attributes:
        units, selected: bool (R, T), at first positions.
        chance: float64 (R,), pi of each row's units.
        own_share: take the share of the row's units that is selected for pi, where the scheme's own is not known.
    """

    __slots__ = ("chance", "found", "selected", "units")

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
        self.found = found = find_units(original, rule, vocabulary, word_starts=word_starts, span_words=span_words)
        self.units = np.zeros(original.shape, bool)
        self.units.reshape(-1)[found.first] = True
        self.selected = self.units & (labels != IGNORE)
        if own_share or (rule.unit != "token" and rule.max_predictions is not None):
            # What a cap leaves of words depends on their lengths: the row's own share stands for its expectation.
            self.chance = self.selected.sum(axis=1) / np.maximum(self.units.sum(axis=1), 1)
        else:
            rates = {n: rule.expected(n) / n if n else 0.0 for n in np.unique(found.maskable).tolist()}
            self.chance = np.array([rates[n] for n in found.maskable.tolist()])

    @property
    def chances(self) -> NDArray[np.float64]:
        """float64 (R, T): pi where a unit stands."""
        chances: NDArray[np.float64] = self.units * self.chance[:, None]
        return chances


@dataclass(slots=True)
class Tally:
    """What was counted.

    Attributes:
        sketch: of mask patterns.
        rows, maskable, tokens, tokens_expected: rows; positions that may be selected; positions that are, and their expectation.
        units, chosen, expected, variance: units, those selected, their expectation, and the variance of their number if they are
            selected one by one.
        row_tokens: (T + 1,) rows by number of selected tokens; most: the largest.
        empty, empty_expected, empty_rows: rows with nothing selected, how many there should be, rows that could be.
        squares, square_count, square_excess: of pooled rows: sum of squared deviations in units of their variance, how many,
            and the sum of their excess kurtosis.
        at_units, at, at_expected, at_variance: (T,) units and selected units by position.
        edges: (2, 3): first and last units of the rows: number, selected, expected.
        by_id: (3, 64): units by a residue of their first id: number, selected, expected.
        actions: (3,) mask, random, keep, of tokens or of units; equal: of these, those expected to be drawn equal.
        drawn, originals: (V,) replacement ids, and the ids that they replaced or might have.
        lengths: (2, 33): units by their tokens, all and selected; length_expected, length_variance: of the latter.
        neighbours, copies, shards, adjacent: pairs that should be independent.
    """

    sketch: Sketch
    row_length: int
    vocabulary_size: int
    rows: int = 0
    maskable: int = 0
    tokens: int = 0
    units: int = 0
    chosen: int = 0
    expected: float = 0.0
    variance: float = 0.0
    tokens_expected: float = 0.0
    row_tokens: NDArray[np.int64] = field(init=False)
    empty: int = 0
    empty_expected: float = 0.0
    empty_rows: int = 0
    squares: float = 0.0
    square_count: int = 0
    square_excess: float = 0.0
    at: NDArray[np.int64] = field(init=False)
    at_units: NDArray[np.int64] = field(init=False)
    at_expected: NDArray[np.float64] = field(init=False)
    at_variance: NDArray[np.float64] = field(init=False)
    edges: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 3)))
    by_id: NDArray[np.float64] = field(default_factory=lambda: np.zeros((3, ID_BINS)))
    actions: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))
    equal: float = 0.0
    drawn: NDArray[np.int64] = field(init=False)
    originals: NDArray[np.int64] = field(init=False)
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, MAX_TOKENS + 1), np.int64))
    length_expected: NDArray[np.float64] = field(default_factory=lambda: np.zeros(MAX_TOKENS + 1))
    length_variance: NDArray[np.float64] = field(default_factory=lambda: np.zeros(MAX_TOKENS + 1))
    neighbours: Pairs = field(default_factory=Pairs)
    copies: Pairs = field(default_factory=Pairs)
    shards: Pairs = field(default_factory=Pairs)
    adjacent: Pairs = field(default_factory=Pairs)

    def __post_init__(self) -> None:
        length = self.row_length
        self.row_tokens = np.zeros(length + 1, np.int64)
        self.at, self.at_units = np.zeros(length, np.int64), np.zeros(length, np.int64)
        self.at_expected, self.at_variance = np.zeros(length), np.zeros(length)
        self.drawn = np.zeros(self.vocabulary_size, np.int64)
        self.originals = np.zeros(self.vocabulary_size, np.int64)

    def update(self, other: Tally) -> None:
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            if isinstance(mine, (Sketch, Pairs)):
                mine.update(theirs)
            elif f.name not in ("row_length", "vocabulary_size"):
                setattr(self, f.name, mine + theirs)

    def see(
        self,
        ids: NDArray[Any],
        labels: NDArray[Any],
        original: NDArray[Any],
        marks: Marks,
        rule: MaskRule,
        vocabulary: MaskVocabulary,
    ) -> None:
        """Counts some rows, (R, T) each, of one copy."""
        units, selected, chance, found = marks.units, marks.selected, marks.chance, marks.found
        per_row, chosen = units.sum(axis=1), selected.sum(axis=1)
        taken = labels != IGNORE
        per_tokens = taken.sum(axis=1)
        self.rows += len(ids)
        self.maskable += int(found.maskable.sum())
        self.tokens += int(per_tokens.sum())
        self.tokens_expected += float((chance * found.maskable).sum())
        self.row_tokens += np.bincount(per_tokens, minlength=self.row_length + 1)
        self.units += len(found.first)
        self.chosen += int(chosen.sum())
        self.expected += float((per_row * chance).sum())
        self.variance += float((per_row * chance * (1 - chance)).sum())
        could = per_row > 0
        self.empty_rows += int(could.sum())
        self.empty += int((chosen[could] == 0).sum())
        self.empty_expected += float(((1 - chance[could]) ** per_row[could]).sum())
        if rule.selection == "bernoulli" and rule.max_predictions is None:
            self._see_variance(per_row, chosen, chance)
        self.at += selected.sum(axis=0)
        self.at_units += units.sum(axis=0)
        self.at_expected += chance @ units
        self.at_variance += (chance * (1 - chance)) @ units
        self._see_edges(units, selected, per_row, chance)
        self._see_units(labels, original, marks, rule)
        self._see_actions(ids, labels, taken, marks, rule, vocabulary)
        even = len(ids) // 2 * 2
        chances = marks.chances
        self.neighbours.see(selected[0:even:2], selected[1:even:2], chances[1:even:2])
        if rule.unit == "token" or rule.selection == "bernoulli":
            after = chances[:, 1::2]
            if rule.selection == "exact":  # one of the n is gone, and one of the k
                n = found.maskable[:, None].astype(np.float64)
                after = np.where(after > 0, (after * n - 1) / np.maximum(n - 1, 1), 0)
            self.adjacent.see(selected[:, 0:-1:2], selected[:, 1::2], after)

    def _see_variance(self, units: NDArray[np.int64], chosen: NDArray[np.int64], chance: NDArray[np.float64]) -> None:
        each = chance * (1 - chance)
        variance = units * each
        group = np.floor(np.cumsum(variance) / POOLED_VARIANCE).astype(np.int64)
        group -= group[0] if len(group) else 0
        pooled = np.bincount(group, variance)
        deviation = np.bincount(group, chosen - units * chance)
        excess = np.bincount(group, variance * (1 - 6 * each))
        full = pooled >= POOLED_VARIANCE / 2
        self.squares += float((deviation[full] ** 2 / pooled[full]).sum())
        self.square_count += int(full.sum())
        self.square_excess += float((excess[full] / pooled[full] ** 2).sum())

    def _see_edges(
        self,
        units: NDArray[np.bool_],
        selected: NDArray[np.bool_],
        per_row: NDArray[np.int64],
        chance: NDArray[np.float64],
    ) -> None:
        long = per_row >= 4 * EDGE  # where the two ends and the middle are different units
        if not long.any():
            return
        rank = np.cumsum(units[long], axis=1, dtype=np.int32)
        here, picked, pi = units[long], selected[long], chance[long]
        for side, near in enumerate((rank <= EDGE, rank > per_row[long, None] - EDGE)):
            at = here & near
            self.edges[side] += at.sum(), (picked & near).sum(), (at.sum(axis=1) * pi).sum()

    def _see_units(self, labels: NDArray[Any], original: NDArray[Any], marks: Marks, rule: MaskRule) -> None:
        found, pi = marks.found, marks.chance[marks.found.rows]
        flat = labels.reshape(-1)
        picked = flat[found.first] != IGNORE
        bins = original.reshape(-1)[found.first].astype(np.int64) % ID_BINS
        self.by_id[0] += np.bincount(bins, minlength=ID_BINS)
        self.by_id[1] += np.bincount(bins[picked], minlength=ID_BINS)
        self.by_id[2] += np.bincount(bins, pi, minlength=ID_BINS)
        if rule.unit == "token":
            return
        size = np.minimum(found.tokens, MAX_TOKENS)
        self.lengths[0] += np.bincount(size, minlength=MAX_TOKENS + 1)
        self.lengths[1] += np.bincount(size[picked], minlength=MAX_TOKENS + 1)
        self.length_expected += np.bincount(size, pi, minlength=MAX_TOKENS + 1)
        self.length_variance += np.bincount(size, pi * (1 - pi), minlength=MAX_TOKENS + 1)

    def _see_actions(
        self,
        ids: NDArray[Any],
        labels: NDArray[Any],
        taken: NDArray[np.bool_],
        marks: Marks,
        rule: MaskRule,
        vocabulary: MaskVocabulary,
    ) -> None:
        at = np.flatnonzero(taken)
        label, there = labels.reshape(-1)[at].astype(np.int64), ids.reshape(-1)[at].astype(np.int64)
        known = (label >= 0) & (label < self.vocabulary_size)
        label = np.where(known, label, 0)
        masked, kept = there == vocabulary.mask_id, there == label
        random = ~masked & ~kept
        drawn = there[random]
        self.drawn += np.bincount(drawn[drawn < self.vocabulary_size], minlength=self.vocabulary_size)
        self.originals += np.bincount(label, minlength=self.vocabulary_size)
        if rule.action_unit == "unit":
            first = marks.units.reshape(-1)[at]
            masked, kept, random, label = masked[first], kept[first], random[first], label[first]
        self.actions += np.array([masked.sum(), random.sum(), kept.sum()])
        self.equal += float(vocabulary.draw_probabilities[label].sum())
