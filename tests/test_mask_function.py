"""Mask function, version 1: its published vectors, and what holds for any rows."""

from __future__ import annotations

import hashlib
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeline.errors import ConfigError
from clozeline.mask_function import IGNORE, MaskRule, MaskVocabulary, apply_mask
from clozeline.seeds import row_words

VOCABULARY = MaskVocabulary(mask_id=4, special_ids=(0, 1, 2, 3, 4), ordinary_ids=np.arange(5, 100))


def words(seed: int, copy: int, shard: int, row: int, length: int) -> np.ndarray:
    return row_words(seed, copy, np.array([shard]), np.array([row]), length)


@pytest.mark.parametrize(
    ("selection", "changes"),
    [
        ("bernoulli", {2: (11, 4), 7: (16, 4), 11: (20, 4), 24: (33, 77)}),
        ("exact", {2: (11, 4), 7: (16, 4), 11: (20, 4), 23: (32, 4), 24: (33, 77)}),
    ],
)
def test_small_vector(selection: str, changes: dict[int, tuple[int, int]]) -> None:
    ids = np.array([[2, *range(10, 40), 3]])
    masked = apply_mask(ids, words(1234, 0, 2, 5, 32), MaskRule(selection=selection), VOCABULARY)
    for position, (before, after) in changes.items():
        assert (ids[0, position], masked.ids[0, position]) == (before, after)
    assert (masked.ids != ids).sum() == len(changes)


def test_digest_of_256_masked_rows() -> None:
    digest = hashlib.sha256()
    for r in range(64):
        ids = np.array([[2, *(5 + (31 * r + 7 * t) % 95 for t in range(510)), 3]])
        for selection in ("bernoulli", "exact"):
            for copy in (0, 1):
                masked = apply_mask(ids, words(42, copy, 3, r, 512), MaskRule(selection=selection), VOCABULARY)
                digest.update(masked.ids.astype("<i8").tobytes() + masked.labels.astype("<i8").tobytes())
    assert digest.hexdigest() == "bcf86a3ae3478077c8ec124ea83de8e6ccc2524a0895a5b744230cf8f38b5490"


@st.composite
def rows(draw: st.DrawFn) -> np.ndarray:
    length = draw(st.integers(1, 60))
    row = st.lists(st.integers(0, 99), min_size=length, max_size=length)
    return np.array(draw(st.lists(row, min_size=1, max_size=4)))


probability = st.floats(0, 1, allow_subnormal=False)


@settings(deadline=None, max_examples=60)
@given(
    ids=rows(),
    selection=st.sampled_from(["bernoulli", "exact"]),
    p=probability,
    share=probability,
    seed=st.integers(0, 99),
)
def test_unmasking_gives_the_row_back_and_specials_are_never_selected(
    ids: np.ndarray, selection: str, p: float, share: float, seed: int
) -> None:
    rule = MaskRule(selection=selection, mask_prob=p, mask_token_prob=share, random_token_prob=(1 - share) / 2)
    before = ids.copy()
    drawn = row_words(seed, 0, np.zeros(len(ids), int), np.arange(len(ids)), ids.shape[1])
    masked = apply_mask(ids, drawn, rule, VOCABULARY)
    assert (ids == before).all()
    assert (np.where(masked.labels == IGNORE, masked.ids, masked.labels) == ids).all()
    selected = masked.labels != IGNORE
    assert not (selected & (ids < 5)).any()
    assert (masked.ids[masked.ids != ids] >= 4).all()
    if selection == "exact":
        n = (ids >= 5).sum(axis=1)
        k = np.where((n > 0) & (p > 0), np.maximum(1, np.floor(p * n + 0.5)), 0)
        assert (selected.sum(axis=1) == k).all()


def test_holes_in_the_vocabulary_are_never_drawn() -> None:
    vocabulary = MaskVocabulary(mask_id=4, special_ids=(0, 1, 2, 3, 4), ordinary_ids=np.array([7, 9, 30]))
    ids = np.full((200, 64), 9)
    rule = MaskRule(mask_prob=1.0, mask_token_prob=0.0, random_token_prob=1.0)
    masked = apply_mask(ids, row_words(1, 0, np.zeros(200, int), np.arange(200), 64), rule, vocabulary)
    found, counts = np.unique(masked.ids, return_counts=True)
    assert found.tolist() == [7, 9, 30]
    assert abs(counts / counts.sum() - 1 / 3).max() < 0.02


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int32, np.int64])
def test_the_width_of_ids_changes_no_mask(dtype: type) -> None:
    ids = np.arange(5, 85).reshape(2, 40)
    drawn = row_words(1, 0, np.zeros(2, int), np.arange(2), 40)
    wide, narrow = (apply_mask(i, drawn, MaskRule(), VOCABULARY) for i in (ids, ids.astype(dtype)))
    assert narrow.ids.dtype == dtype
    assert (narrow.ids == wide.ids).all()
    assert (narrow.labels == wide.labels).all()


def test_selection_draws_do_not_decide_actions() -> None:
    """A masker that uses one draw for both masks everything it selects at 80/10/10 (a bug that others shipped)."""
    ids = np.full((400, 128), 50)
    drawn = row_words(3, 0, np.zeros(400, int), np.arange(400), 128)
    masked = apply_mask(ids, drawn, MaskRule(), VOCABULARY)
    low = (drawn >> np.uint64(32)) < floor(0.075 * 2**32)
    selected = masked.labels != IGNORE
    shares = [(masked.ids[selected & half] == 4).mean() for half in (low, ~low)]
    assert abs(shares[0] - shares[1]) < 0.03


@pytest.mark.parametrize(
    "options",
    [
        {"mask_prob": 1.5},
        {"mask_prob": -0.1},
        {"mask_token_prob": 0.9, "random_token_prob": 0.2},
        {"selection": "whatever"},
        {"random_token_prob": float("nan")},
    ],
)
def test_impossible_rules_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        MaskRule(**options)
