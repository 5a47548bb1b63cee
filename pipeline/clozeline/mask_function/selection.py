"""Selection: which positions of rows are to be predicted.

Shapes: R rows, T positions per row, U units, N selected positions.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.mask_function.units import SELECT, Units, find_units, halves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.mask_function.rule import MaskRule
    from clozeline.mask_function.vocabulary import MaskVocabulary

    Index = NDArray[np.intp]

_NONE = np.uint64(2**64 - 1)


def select(
    ids: NDArray[Any],
    words: NDArray[np.uint64],
    rule: MaskRule,
    vocabulary: MaskVocabulary,
    *,
    word_starts: NDArray[Any] | None = None,
    span_words: NDArray[np.uint64] | None = None,
) -> tuple[Index, Index]:
    """Flat indices of the selected positions, and for each that of the first position of its unit.

    Args: see `apply_mask`.

    Returns:
        intp (N,) each; the positions are sorted.
    """
    drawn = halves(words)[:, SELECT::2]
    limit = floor(rule.probability * 2.0**32)
    if rule.unit == "token":
        if rule.selection == "bernoulli":
            # Most positions are not selected: look up what is special only where the word would select. A word's upper half is
            # below the limit exactly when the word is below the limit with 32 zeros behind it.
            index = np.flatnonzero(words < np.uint64(limit << 32) if limit < 2**32 else np.ones(words.shape, bool))
            index = index[vocabulary.maskable.take(ids.reshape(-1).take(index))]
            index = _cap_tokens(index, drawn, rule)
        else:
            index = _exact_tokens(drawn, vocabulary.maskable[ids], rule)
        return index, index
    units = find_units(ids, rule, vocabulary, word_starts=word_starts, span_words=span_words)
    keys = drawn.reshape(-1)[units.first]
    if rule.selection == "bernoulli":
        chosen, order = keys < limit, keys.astype(np.int64)
    else:
        assert span_words is not None
        chosen, order = _exact_units(units, keys, halves(span_words)[:, SELECT], ids.shape[1], rule)
    if rule.max_predictions is not None:
        chosen = _cap_units(units, chosen, order, rule.max_predictions)
    taken = chosen[units.unit]
    return units.positions[taken], units.first[units.unit[taken]]


def _budgets(maskable: NDArray[np.int64], rule: MaskRule) -> NDArray[np.int64]:
    """`rule.budget` for each row."""
    table = {n: rule.budget(n) for n in np.unique(maskable).tolist()}
    return np.array([table[n] for n in maskable.tolist()], np.int64)


def _exact_tokens(drawn: NDArray[np.uint32], maskable: NDArray[np.bool_], rule: MaskRule) -> Index:
    """Of each row the k maskable positions with the smallest (draw, position)."""
    rows, length = drawn.shape
    keys = drawn.astype(np.uint64) << np.uint64(16) | np.arange(length, dtype=np.uint64)  # T <= 8192 < 2**16
    keys[~maskable] = _NONE
    budget = _budgets(maskable.sum(axis=1), rule)
    threshold = np.zeros(rows, np.uint64)
    for k in np.unique(budget[budget > 0]).tolist():
        with_k = np.flatnonzero(budget == k)
        threshold[with_k] = np.partition(keys[with_k], k - 1, axis=1)[:, k - 1]
    return np.flatnonzero((keys <= threshold[:, None]) & (budget > 0)[:, None])


def _exact_units(
    units: Units, keys: NDArray[np.uint32], offsets: NDArray[np.uint32], length: int, rule: MaskRule
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """An arc of the circle: the units of a row in random order, laid end to end around a circle of n tokens; those that begin
    within an arc of k tokens from a random point are selected.

    Every unit is selected with probability k / n exactly, however long it is, and the tokens selected differ from k by
    less than the longest unit.

    Returns:
        bool (U,) selected; int64 (U,) tokens from the arc's start to the unit's, by which a cap drops the last ones.
    """
    # Of each row the units sorted by (key, position): one number for both, and what is no unit comes last.
    count = len(units.maskable) * length
    numbers = np.full(count, _NONE, np.uint64)
    numbers[units.first] = keys.astype(np.uint64) << np.uint64(16) | (units.first % length).astype(np.uint64)
    numbers = np.sort(numbers.reshape(-1, length), axis=1)
    row, rank = np.nonzero(numbers != _NONE)
    order = row * length + (numbers[row, rank] & np.uint64(0xFFFF)).astype(np.intp)
    at_position = np.zeros(count, np.int64)
    at_position[units.first] = units.tokens
    tokens = at_position[order]
    at_position[order] = np.cumsum(tokens) - tokens
    place = at_position[units.first]
    row_starts = np.cumsum(units.maskable) - units.maskable
    n = units.maskable[units.rows]
    arc_start = (offsets.astype(np.uint64) * units.maskable.astype(np.uint64) >> np.uint64(32)).astype(np.int64)
    distance = (place - row_starts[units.rows] - arc_start[units.rows]) % np.maximum(n, 1)
    return distance < _budgets(units.maskable, rule)[units.rows], distance


def _cap_tokens(index: Index, drawn: NDArray[np.uint32], rule: MaskRule) -> Index:
    """Of each row the selected positions with the smallest (draw, position), as many as allowed."""
    if rule.max_predictions is None:
        return index
    rows, keys = index // drawn.shape[1], drawn.reshape(-1)[index]
    kept = _within(rows, keys.astype(np.int64), np.ones(len(index), np.int64), rule.max_predictions)
    return index[kept]


def _cap_units(units: Units, chosen: NDArray[np.bool_], order: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Of each row the selected units in their order, up to the first that would bring more tokens than allowed."""
    at = np.flatnonzero(chosen)
    kept = np.zeros_like(chosen)
    kept[at[_within(units.rows[at], order[at], units.tokens[at], most)]] = True
    return kept


def _within(rows: Index, order: NDArray[np.int64], tokens: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """bool, for each of some units: it is among the first of its row that together have at most `most` tokens.

    Args:
        rows: sorted.
    """
    by = np.lexsort((order, rows))  # stable: ties by position
    sums = np.cumsum(tokens[by])
    starts = np.flatnonzero(np.diff(rows[by], prepend=-1))
    before = (sums - tokens[by])[starts]
    sizes = np.diff(starts, append=len(by))
    fits = sums - np.repeat(before, sizes) <= most
    kept = np.empty(len(by), bool)
    kept[by] = fits
    return kept
