"""Masked rows and labels.

Shapes: R rows, T positions per row, B rows with identities.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clozeline.mask_function.selection import select
from clozeline.mask_function.units import ACTION, halves
from clozeline.seeds import SPANS, row_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.mask_function.rule import MaskRule
    from clozeline.mask_function.vocabulary import MaskVocabulary

VERSION = 1
IGNORE = -100  # what torch.nn.CrossEntropyLoss ignores by default
_WORD = 2.0**32
_BLOCK = 128  # rows masked together: half a megabyte of random words, which stays in the cache


class Masked(NamedTuple):
    """Rows after masking.

    Attributes:
        ids: (R, T), of the dtype of the ids given.
        labels: (R, T): the original id where selected, -100 elsewhere.
        actions: number of positions "selected", and of these set to "mask" or "random" or left ("keep").
    """

    ids: NDArray[Any]
    labels: NDArray[Any]
    actions: dict[str, int]


def apply_mask(
    ids: NDArray[Any],
    words: NDArray[np.uint64],
    rule: MaskRule,
    vocabulary: MaskVocabulary,
    *,
    label_dtype: Any = np.int64,
    word_starts: NDArray[Any] | None = None,
    span_words: NDArray[np.uint64] | None = None,
) -> Masked:
    """Masks rows.

    Args:
        ids: (R, T) of any integer dtype; not changed.
        words: uint64 (R, T), see `seeds.row_words`.
        rule: of one copy.
        label_dtype: a signed dtype that holds every id.
        word_starts: (R, T), nonzero at the first token of each word, where units are words or spans and the vocabulary does
            not tell.
        span_words: uint64 (R, T), of the domain `seeds.SPANS`; needed for spans, and for words under "exact".

    Returns:
        Masked ids, labels, and how often each action was taken.

    The cost for tokens is that of the random words plus about 4 microseconds per row of 512.
    """
    index, first = select(ids, words, rule, vocabulary, word_starts=word_starts, span_words=span_words)
    flat = np.ascontiguousarray(ids).reshape(-1)
    original = flat[index]
    labels = np.full(flat.shape, IGNORE, label_dtype)
    labels[index] = original

    actions = halves(words).reshape(-1)
    own = actions[2 * index + ACTION]
    decides = actions[2 * first + ACTION] if rule.action_unit == "unit" else own
    low = floor(rule.mask_token_prob * _WORD)
    high = floor((rule.mask_token_prob + rule.random_token_prob) * _WORD)
    masked = flat.copy()
    becomes_mask = decides < low
    masked[index[becomes_mask]] = vocabulary.mask_id
    drawn = (decides >= low) & (decides < high)
    if high > low:
        share = own[drawn].astype(np.uint64)
        width = np.full(len(share), high - low, np.uint64)
        if rule.action_unit == "unit":
            # The first token's draw lies in [low, high); those of the others are free.
            free = index[drawn] != first[drawn]
            share[~free] -= np.uint64(low)
            width[free] = 2**32
        else:
            share -= np.uint64(low)
        masked[index[drawn]] = _replacements(share, width, rule, vocabulary)
    counts = {"selected": len(index), "mask": int(becomes_mask.sum()), "random": int(drawn.sum())}
    counts["keep"] = counts["selected"] - counts["mask"] - counts["random"]
    return Masked(masked.reshape(ids.shape), labels.reshape(ids.shape), counts)


def _replacements(
    share: NDArray[np.uint64], width: NDArray[np.uint64], rule: MaskRule, vocabulary: MaskVocabulary
) -> NDArray[np.int64]:
    """Ordinary ids for draws `share` out of 0..width-1."""
    ordinary = vocabulary.ordinary_ids
    if rule.replacement == "frequency":
        scaled = (share << np.uint64(32)) // width
        return ordinary[np.searchsorted(vocabulary.frequency_limits, scaled, side="right")]
    chosen: NDArray[np.int64] = ordinary[share * np.uint64(len(ordinary)) // width]
    return chosen


def mask_rows(
    ids: NDArray[Any],
    rule: MaskRule,
    vocabulary: MaskVocabulary,
    *,
    seed: int,
    copy: int,
    shards: NDArray[np.int64],
    rows: NDArray[np.int64],
    label_dtype: Any = np.int64,
    word_starts: NDArray[Any] | None = None,
) -> Masked:
    """Masks rows by what they are: the mask function itself, with the random words drawn for it.

    Args:
        ids: (B, T).
        rule: of all copies.
        seed, copy, shards, rows: the identity of the masks and of each row; int64 (B,) each of the latter.
        label_dtype, word_starts: see `apply_mask`.
    """
    masked, labels = np.empty_like(ids), np.empty(ids.shape, label_dtype)
    counts = dict.fromkeys(("selected", "mask", "random", "keep"), 0)
    one = rule.for_copy(copy)
    needs_spans = rule.unit == "span" or (rule.unit == "word" and rule.selection == "exact")
    for first in range(0, len(ids), _BLOCK):
        block = slice(first, first + _BLOCK)
        part = apply_mask(
            ids[block],
            row_words(seed, copy, shards[block], rows[block], ids.shape[1]),
            one,
            vocabulary,
            label_dtype=label_dtype,
            word_starts=None if word_starts is None else word_starts[block],
            span_words=row_words(seed, copy, shards[block], rows[block], ids.shape[1], domain=SPANS)
            if needs_spans
            else None,
        )
        masked[block], labels[block] = part.ids, part.labels
        for action, count in part.actions.items():
            counts[action] += count
    return Masked(masked, labels, counts)
