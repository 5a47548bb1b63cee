"""Counts of masked rows, from which every statistic is computed: one pass, constant memory, and two tallies add up.

The unit of chance is the unit of selection: a token, a word or a span. It stands at its first position; pi is the probability
with which the scheme selects it, which may differ from row to row (an exact count of a short row, a copy's own rate).

Shapes: R rows of T positions (the longest rows, where they differ from shard to shard), V vocabulary, U units.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.mask_function import IGNORE
from clozeline.verification.sketch import Sketch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.mask_function import MaskRule, MaskVocabulary
    from clozeline.mask_function.units import Units
    from clozeline.verification.marks import Marks

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

    def see(self, at: NDArray[np.intp], other: Marks, shift: int = 0) -> None:
        """Adds selected units: is the one at the same place of `other`, or `shift` places on, selected too?

        Args:
            at: flat positions of the selected units.
        """
        places = at + shift
        places = places[other.units.reshape(-1)[places]]
        self.trials += len(places)
        self.hits += int(np.count_nonzero(other.selected.reshape(-1)[places]))
        per_row = np.bincount(places // other.units.shape[1], minlength=len(other.chance))
        self.expected += float(per_row @ other.chance)

    def update(self, other: Pairs) -> None:
        self.trials += other.trials
        self.hits += other.hits
        self.expected += other.expected


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
        at, at_expected, at_variance: (T,) selected units by position.
        edges: (2, 3): first and last units of the rows: number, selected, expected.
        by_id: (3, 64): units by a residue of their first id: number, selected, expected.
        actions: (3,) mask, random, keep, of tokens or of units; equal: of these, those expected to be drawn equal.
        fill: (T + 1,) rows by tokens that are not padding; stretches: (16,) runs of maskable positions by log2 of their length.
        drawn, originals: (V,) replacement ids, and the ids that they replaced or might have.
        lengths: (2, 33): units by their tokens, all and selected; length_expected, length_variance: of the latter.
        span_words: (257,) spans by their words, of those that no row or separator could cut.
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
    fill: NDArray[np.int64] = field(init=False)
    stretches: NDArray[np.int64] = field(default_factory=lambda: np.zeros(16, np.int64))
    empty: int = 0
    empty_expected: float = 0.0
    empty_rows: int = 0
    squares: float = 0.0
    square_count: int = 0
    square_excess: float = 0.0
    at: NDArray[np.int64] = field(init=False)
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
    span_words: NDArray[np.int64] = field(default_factory=lambda: np.zeros(257, np.int64))
    neighbours: Pairs = field(default_factory=Pairs)
    copies: Pairs = field(default_factory=Pairs)
    shards: Pairs = field(default_factory=Pairs)
    adjacent: Pairs = field(default_factory=Pairs)

    def __post_init__(self) -> None:
        length = self.row_length
        self.row_tokens = np.zeros(length + 1, np.int64)
        self.fill = np.zeros(length + 1, np.int64)
        self.at = np.zeros(length, np.int64)
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
        length = ids.shape[1]
        per_row, chosen, chance = marks.per_row, marks.chosen, marks.chance
        taken = np.flatnonzero(labels != IGNORE)
        per_tokens = np.diff(np.searchsorted(taken, np.arange(len(ids) + 1) * length))
        self.rows += len(ids)
        self.maskable += int(marks.maskable.sum())
        self.tokens += len(taken)
        self.tokens_expected += float(chance @ marks.maskable)
        self.row_tokens += np.bincount(per_tokens, minlength=self.row_length + 1)
        self.units += len(marks.first)
        self.chosen += len(marks.at)
        self.expected += float(chance @ per_row)
        self.variance += float((chance * (1 - chance)) @ per_row)
        could = per_row > 0
        self.empty_rows += int(could.sum())
        self.empty += int((chosen[could] == 0).sum())
        self.empty_expected += float(((1 - chance[could]) ** per_row[could]).sum())
        if rule.selection == "bernoulli" and rule.max_predictions is None:
            self._see_variance(per_row, chosen, chance)
        self.at += np.bincount(marks.at % length, minlength=self.row_length)
        self._see_positions(marks)
        self._see_edges(marks)
        self._see_ids(original, marks)
        self._see_actions(ids, labels, taken, marks, rule, vocabulary)
        if marks.found is not None:
            self._see_lengths(marks, marks.found)
        if marks.found is not None and marks.words is not None:
            self._see_spans(marks.found, marks.words, rule.max_span)
        # Every second row, and every second position, so that no unit is asked about twice.
        even_rows = marks.at[(marks.at // length % 2 == 0) & (marks.at < (len(ids) - 1) * length)]
        self.neighbours.see(even_rows, marks, length)
        # Words that "exact" takes go around a circle side by side, in an order that says nothing of pairs.
        if rule.unit == "token" or rule.selection == "bernoulli" or rule.max_predictions is not None:
            column = marks.at % length
            self._see_adjacent(marks.at[(column % 2 == 0) & (column < length - 1)], marks, rule)

    def _see_positions(self, marks: Marks) -> None:
        length = marks.units.shape[1]
        chances = np.unique(marks.chance)
        if len(chances) <= 4:
            for chance in chances.tolist():
                here = marks.chance == chance
                units = (marks.units if here.all() else marks.units[here]).sum(axis=0, dtype=np.int32)
                self.at_expected[:length] += chance * units
                self.at_variance[:length] += chance * (1 - chance) * units
            return
        expected, variance = np.stack([marks.chance, marks.chance * (1 - marks.chance)]) @ marks.units.astype(float)
        self.at_expected[:length] += expected
        self.at_variance[:length] += variance

    def _see_adjacent(self, at: NDArray[np.intp], marks: Marks, rule: MaskRule) -> None:
        if rule.selection == "bernoulli" and rule.max_predictions is None:
            self.adjacent.see(at, marks, 1)
            return
        pairs = Pairs()
        pairs.see(at, marks, 1)
        # The row's number of selected units is not free: of its n one is gone, and one of the k.
        places = at[marks.units.reshape(-1)[at + 1]] // marks.units.shape[1]
        pairs.expected = float(((marks.chosen - 1) / np.maximum(marks.per_row - 1, 1))[places].sum())
        self.adjacent.update(pairs)

    def see_shape(self, original: NDArray[Any], attention: NDArray[Any], vocabulary: MaskVocabulary) -> None:
        """Counts how full rows are, and how long their stretches of text; (R, T) each."""
        self.fill += np.bincount(np.count_nonzero(attention, axis=1), minlength=self.row_length + 1)
        text = np.zeros((original.shape[0], original.shape[1] + 2), np.int8)
        text[:, 1:-1] = vocabulary.maskable[original]
        edges = np.flatnonzero(np.diff(text.reshape(-1)))
        lengths = edges[1::2] - edges[0::2]
        self.stretches += np.bincount(np.log2(np.maximum(lengths, 1)).astype(np.int64), minlength=16)[:16]

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

    def _see_edges(self, marks: Marks) -> None:
        long = np.flatnonzero(marks.per_row >= 4 * EDGE)  # where the two ends and the middle are different units
        ends = np.cumsum(marks.per_row)
        offsets = np.arange(EDGE)
        picked = marks.selected.reshape(-1)
        for side, start in enumerate((ends - marks.per_row, ends - EDGE)):
            places = marks.first[(start[long, None] + offsets).reshape(-1)]
            self.edges[side] += len(places), np.count_nonzero(picked[places]), EDGE * marks.chance[long].sum()

    def _see_ids(self, original: NDArray[Any], marks: Marks) -> None:
        bins = original.reshape(-1) & (ID_BINS - 1)
        units = bins[marks.first]
        number = np.bincount(units, minlength=ID_BINS)
        self.by_id[0] += number
        self.by_id[1] += np.bincount(bins[marks.at], minlength=ID_BINS)
        if len(marks.chance) and (marks.chance == marks.chance[0]).all():
            self.by_id[2] += number * marks.chance[0]
        else:
            self.by_id[2] += np.bincount(units, np.repeat(marks.chance, marks.per_row), minlength=ID_BINS)

    def _see_lengths(self, marks: Marks, found: Units) -> None:
        pi = marks.chance[found.rows]
        picked = marks.selected.reshape(-1)[found.first]
        size = np.minimum(found.tokens, MAX_TOKENS)
        self.lengths[0] += np.bincount(size, minlength=MAX_TOKENS + 1)
        self.lengths[1] += np.bincount(size[picked], minlength=MAX_TOKENS + 1)
        self.length_expected += np.bincount(size, pi, minlength=MAX_TOKENS + 1)
        self.length_variance += np.bincount(size, pi * (1 - pi), minlength=MAX_TOKENS + 1)

    def _see_spans(self, spans: Units, words: Units, most: int) -> None:
        """Counts the words of spans that nothing could cut short: whose lengths are as they were drawn."""
        follows = np.zeros(len(words.first), bool)
        follows[1:] = (words.first[1:] == words.first[:-1] + words.tokens[:-1]) & (words.rows[1:] == words.rows[:-1])
        row_begins = np.ones(len(words.first), bool)
        row_begins[1:] = words.rows[1:] != words.rows[:-1]
        breaks = np.append(np.flatnonzero(~follows), len(words.first))
        at = np.searchsorted(words.first, spans.first)
        room = breaks[np.searchsorted(breaks, at, side="right")] - at
        free = (room >= most) & (follows[at] | row_begins[at])  # after a break stands what is left of a span
        lengths = np.diff(at, append=len(words.first))[free]
        self.span_words += np.bincount(lengths, minlength=len(self.span_words))

    def _see_actions(
        self,
        ids: NDArray[Any],
        labels: NDArray[Any],
        at: NDArray[np.intp],
        marks: Marks,
        rule: MaskRule,
        vocabulary: MaskVocabulary,
    ) -> None:
        label, there = labels.reshape(-1)[at].astype(np.int64), ids.reshape(-1)[at].astype(np.int64)
        known = (label >= 0) & (label < self.vocabulary_size)
        label = np.where(known, label, 0)
        masked, kept = there == vocabulary.mask_id, there == label
        random = ~masked & ~kept
        drawn = there[random & (there >= 0) & (there < self.vocabulary_size)]
        self.drawn += np.bincount(drawn, minlength=self.vocabulary_size)
        self.originals += np.bincount(label, minlength=self.vocabulary_size)
        if rule.action_unit == "unit":
            first = marks.units.reshape(-1)[at]
            masked, kept, random, label = masked[first], kept[first], random[first], label[first]
        self.actions += np.array([masked.sum(), random.sum(), kept.sum()])
        self.equal += float(vocabulary.draw_probabilities[label].sum())
