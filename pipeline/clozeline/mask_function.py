"""Mask function, version 1: ids and random words in, masked ids and labels out. Pure, and the only place where masks are made.

The objective is BERT's cloze task (Devlin et al. 2019, section 3.1, "Task #1: Masked LM"): of the selected tokens 80 % become
[MASK], 10 % a random token, 10 % stay. `docs/mask.md` has the exact definition with test vectors; a change of one bit of
output is a new version.

Shapes: R rows, T positions per row.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from functools import cached_property
from math import floor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from clozeline.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
IGNORE = -100  # what torch.nn.CrossEntropyLoss ignores by default
_WORD = 2.0**32
_SELECT, _ACTION = (
    (1, 0) if sys.byteorder == "little" else (0, 1)
)  # a word seen as two uint32: word >> 32, word & 0xffffffff


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskRule:
    """How positions are selected and what becomes of them.

    Attributes:
        selection: "bernoulli" selects each maskable position on its own; "exact" selects the same number in rows of
            the same length.
        mask_prob: share of the maskable positions that are selected.
        mask_token_prob, random_token_prob: shares of the selected positions that become [MASK] and a random ordinary
            token; the rest keep their token.
    """

    selection: Literal["bernoulli", "exact"] = "bernoulli"
    mask_prob: float = 0.15
    mask_token_prob: float = 0.8
    random_token_prob: float = 0.1

    def __post_init__(self) -> None:
        if self.selection not in ("bernoulli", "exact"):
            raise ConfigError(f"selection is {self.selection!r}: use 'bernoulli' or 'exact'")
        for name in ("mask_prob", "mask_token_prob", "random_token_prob"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"{name} is {value}: a probability lies between 0 and 1")
        total = self.mask_token_prob + self.random_token_prob
        if total > 1.0:
            raise ConfigError(
                f"mask_token_prob {self.mask_token_prob} + random_token_prob {self.random_token_prob} = {total:g}: "
                "they are shares of the selected tokens and must not sum to more than 1"
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> MaskRule:
        return cls(**data)


@dataclass(frozen=True, kw_only=True)
class MaskVocabulary:
    """What masking must know of a vocabulary.

    Attributes:
        mask_id: the id of the mask token.
        special_ids: ids that are never selected and never drawn.
        ordinary_ids: int64 (N,), sorted: the ids that a random replacement may take. Holes in the vocabulary are in
            neither.
    """

    mask_id: int
    special_ids: tuple[int, ...]
    ordinary_ids: NDArray[np.int64]

    @cached_property
    def maskable(self) -> NDArray[np.bool_]:
        """bool (largest id + 1,): False for special ids."""
        largest = max(self.mask_id, *self.special_ids, int(self.ordinary_ids.max(initial=0)))
        table = np.ones(largest + 1, bool)
        table[list(self.special_ids)] = False
        return table


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


def _select_exact(select: NDArray[np.uint32], maskable: NDArray[np.bool_], probability: float) -> NDArray[np.intp]:
    """Flat indices of the k maskable positions of each row with the smallest (select, position)."""
    rows, length = select.shape
    keys = select.astype(np.uint64) << np.uint64(16) | np.arange(length, dtype=np.uint64)  # T <= 8192 < 2**16
    keys[~maskable] = np.iinfo(np.uint64).max
    counts = maskable.sum(axis=1)
    budget = np.floor(probability * counts + 0.5).astype(np.int64)
    if probability > 0:
        budget = np.where(counts > 0, np.maximum(budget, 1), 0)
    threshold = np.zeros(rows, np.uint64)
    for k in np.unique(budget[budget > 0]).tolist():
        with_k = np.flatnonzero(budget == k)
        threshold[with_k] = np.partition(keys[with_k], k - 1, axis=1)[:, k - 1]
    return np.flatnonzero((keys <= threshold[:, None]) & (budget > 0)[:, None])


def apply_mask(
    ids: NDArray[Any],
    words: NDArray[np.uint64],
    rule: MaskRule,
    vocabulary: MaskVocabulary,
    *,
    label_dtype: Any = np.int64,
) -> Masked:
    """Masks rows.

    Args:
        ids: (R, T) of any integer dtype; not changed.
        words: uint64 (R, T), see `seeds.row_words`.
        label_dtype: a signed dtype that holds every id.

    Returns:
        Masked ids, labels, and how often each action was taken.

    The cost is that of the random words plus about 4 microseconds per row of 512.
    """
    halves = np.ascontiguousarray(words).view(np.uint32)
    select_half = halves[:, _SELECT::2]

    flat = np.ascontiguousarray(ids).reshape(-1)
    if rule.selection == "bernoulli":
        # Most positions are not selected: look up what is special only where the word would select.
        index = np.flatnonzero(select_half < floor(rule.mask_prob * _WORD))
        index = index[vocabulary.maskable[flat[index]]]
    else:
        index = _select_exact(select_half, vocabulary.maskable[ids], rule.mask_prob)

    original = flat[index]
    action = halves.reshape(-1)[2 * index + _ACTION]
    labels = np.full(flat.shape, IGNORE, label_dtype)
    labels[index] = original

    low = floor(rule.mask_token_prob * _WORD)
    high = floor((rule.mask_token_prob + rule.random_token_prob) * _WORD)
    masked = flat.copy()
    becomes_mask = action < low
    masked[index[becomes_mask]] = vocabulary.mask_id
    drawn = (action >= low) & (action < high)
    if high > low:
        share = action[drawn].astype(np.uint64) - np.uint64(low)
        ordinary = vocabulary.ordinary_ids
        masked[index[drawn]] = ordinary[share * np.uint64(len(ordinary)) // np.uint64(high - low)]
    actions = {"selected": len(index), "mask": int(becomes_mask.sum()), "random": int(drawn.sum())}
    actions["keep"] = actions["selected"] - actions["mask"] - actions["random"]
    return Masked(masked.reshape(ids.shape), labels.reshape(ids.shape), actions)
