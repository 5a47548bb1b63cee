"""Units: what is selected as a whole. A token, a word, or a span of words.

Shapes: R rows, T positions per row, M maskable positions of all rows, U units of all rows.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.mask_function.rule import MaskRule
    from clozeline.mask_function.vocabulary import MaskVocabulary

# A word seen as two uint32: word >> 32 and word & 0xffffffff.
SELECT, ACTION = (1, 0) if sys.byteorder == "little" else (0, 1)


def halves(words: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """(R, T) words as (R, 2 T) halves; `[:, SELECT::2]` are the upper ones, `[:, ACTION::2]` the lower."""
    return np.ascontiguousarray(words).view(np.uint32)


@dataclass(frozen=True, slots=True)
class Units:
    """The units of some rows, in order.

    Attributes:
        positions: intp (M,), flat indices of the maskable positions.
        unit: intp (M,), the unit of each.
        first: intp (U,), flat index of each unit's first position.
        tokens: int64 (U,), positions in each unit.
        rows: intp (U,), the row of each unit.
        maskable: int64 (R,), maskable positions in each row.
    """

    positions: NDArray[np.intp]
    unit: NDArray[np.intp]
    first: NDArray[np.intp]
    tokens: NDArray[np.int64]
    rows: NDArray[np.intp]
    maskable: NDArray[np.int64]


def find_units(
    ids: NDArray[Any],
    rule: MaskRule,
    vocabulary: MaskVocabulary,
    *,
    word_starts: NDArray[Any] | None = None,
    span_words: NDArray[np.uint64] | None = None,
) -> Units:
    """The units of rows.

    Args:
        ids: (R, T).
        word_starts: (R, T), nonzero at the first token of each word; not needed where the vocabulary marks continuations.
        span_words: uint64 (R, T), where units are spans.

    A word ends before a position that is not maskable; what is left of a word at a row's start is a word of its own. Spans
    tile the words of a row from the left, their lengths drawn one after another, and are cut where a word is.

    Raises:
        DataError: words are asked for, and neither the rows nor the vocabulary tell where they start.
    """
    maskable = vocabulary.maskable[ids]
    counts = maskable.sum(axis=1)
    positions = np.flatnonzero(maskable)
    if rule.unit == "token":
        order = np.arange(len(positions))
        return Units(positions, order, positions, np.ones(len(positions), np.int64), positions // ids.shape[1], counts)
    after_gap = maskable.copy()
    after_gap[:, 1:] &= ~maskable[:, :-1]
    starts = maskable & _word_starts(ids, vocabulary, word_starts) | after_gap
    if rule.unit == "span":
        assert span_words is not None
        number = np.cumsum(starts, axis=1) - 1  # of the word within its row
        begins = _span_begins(rule, span_words)
        starts &= np.take_along_axis(begins, np.maximum(number, 0), axis=1) | after_gap
    at = starts.reshape(-1)[positions]
    unit = np.cumsum(at) - 1
    place = np.flatnonzero(at)
    first = positions[place]
    tokens = np.diff(place, append=len(positions))
    return Units(positions, unit, first, tokens, first // ids.shape[1], counts)


def _word_starts(ids: NDArray[Any], vocabulary: MaskVocabulary, word_starts: NDArray[Any] | None) -> NDArray[np.bool_]:
    if word_starts is not None:
        return word_starts.astype(bool)
    if vocabulary.continuing is None:
        raise DataError(
            "words are to be masked as a whole, but neither the rows nor the vocabulary tell where words start: "
            "pack again with --word-starts"
        )
    starts: NDArray[np.bool_] = ~vocabulary.continuing[ids]
    return starts


def _span_begins(rule: MaskRule, span_words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """bool (R, T): a span begins with the w-th word of the row. The j-th span's length is drawn by the j-th word's lower half."""
    limits, total = [], 0.0
    for probability in rule.span_distribution[:-1]:
        total += probability
        limits.append(floor(total * 2.0**32))
    lengths = np.searchsorted(np.array(limits, np.uint32), halves(span_words)[:, ACTION::2], side="right") + 1
    ends = np.cumsum(lengths, axis=1)
    rows, width = ends.shape
    begins = np.zeros((rows, width + 1), bool)  # the last column takes what lies beyond the row
    begins[:, 0] = True
    np.put_along_axis(begins, np.minimum(ends, width), True, axis=1)
    return begins[:, :width]
