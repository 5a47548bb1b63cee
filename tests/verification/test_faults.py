"""Faulty maskers, each a bug that a real tool has had, and the check by which `verify` finds each.

The rows are 2,000 of 512 tokens. The maskers are written with numpy's own generator: nothing here knows the mask function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows_at_hand import FACTS, MASK, PAD, SEP, SIZE, make_rows

from clozeline import MaskRule, RunOptions, verify_foreign

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = make_rows(2000, 512)
ORDINARY = np.concatenate([np.arange(a, b + 1) for a, b in FACTS.ordinary_ranges])
CONTINUING = (np.arange(SIZE) % 4 == 3) & (np.arange(SIZE) >= 7)


@dataclass
class Masker:
    """A masker whose parts can be replaced by faulty ones."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    mask: float = 0.8
    random: float = 0.1

    def maskable(self, ids: np.ndarray) -> np.ndarray:
        return ids > 4

    def draws(self, ids: np.ndarray) -> np.ndarray:
        """float (R, L): what positions are selected by."""
        return self.rng.random(ids.shape)

    def select(self, ids: np.ndarray) -> np.ndarray:
        return (self.draws(ids) < 0.15) & self.maskable(ids)

    def replace(self, ids: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.choice(ORDINARY, shape)

    def __call__(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        selected = self.select(ids)
        action = self.rng.random(ids.shape)
        masked = ids.copy()
        masked[selected & (action < self.mask)] = MASK
        random = selected & (action >= self.mask) & (action < self.mask + self.random)
        masked[random] = self.replace(ids, random.shape)[random]
        return masked, np.where(selected, ids, -100)


def words_of(ids: np.ndarray) -> np.ndarray:
    """int (R, L): the running number of each position's word."""
    ordinary = ids > 4
    before = np.zeros_like(ordinary)
    before[:, 1:] = ordinary[:, :-1]
    return np.cumsum(~CONTINUING[ids] | ~before, axis=1)


class WholeWords(Masker):
    def select(self, ids: np.ndarray) -> np.ndarray:
        words = words_of(ids)
        chosen = self.rng.random((len(ids), words.max() + 1)) < 0.15
        return np.take_along_axis(chosen, words, axis=1) & self.maskable(ids)


class Exact(Masker):
    def select(self, ids: np.ndarray) -> np.ndarray:
        keys = np.where(self.maskable(ids), self.rng.random(ids.shape), 2.0)
        count = np.maximum(1, np.round(0.15 * self.maskable(ids).sum(axis=1))).astype(int)
        return keys.argsort(axis=1).argsort(axis=1) < count[:, None]


def repeated_by_workers(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A generator seeded once is copied into each of four DataLoader workers (pytorch#41329)."""
    parts = [Masker(np.random.default_rng(7))(part) for part in np.split(ids, 4)]
    return tuple(np.concatenate(x) for x in zip(*parts, strict=True))


def one_mask_a_batch(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    class Batch(Masker):
        def draws(self, ids: np.ndarray) -> np.ndarray:
            return np.repeat(self.rng.random((len(ids) // 8, ids.shape[1])), 8, axis=0)

    return Batch()(ids)


def few_seeds(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A seed a row, from a hash with 34,000 values: a million rows share them."""
    seeds = np.random.default_rng(5).integers(0, 34_000, len(ids))
    parts = [Masker(np.random.default_rng(s))(row[None]) for s, row in zip(seeds.tolist(), ids, strict=True)]
    return tuple(np.concatenate(x) for x in zip(*parts, strict=True))


def specials_selected(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] and [SEP] of packed rows are selected (ModernBERT#212)."""

    class Specials(Masker):
        def maskable(self, ids: np.ndarray) -> np.ndarray:
            return ids != PAD

    return Specials()(ids)


def padding_selected(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    class Padding(Masker):
        def maskable(self, ids: np.ndarray) -> np.ndarray:
            return (ids > 4) | (ids == PAD)

    return Padding()(ids)


def padding_overwritten(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Random tokens land in the padding, labels stay -100."""
    masker = Masker()
    masked, labels = masker(ids)
    spoiled = (ids == PAD) & (masker.rng.random(ids.shape) < 0.015)
    masked[spoiled] = masker.rng.choice(ORDINARY, ids.shape)[spoiled]
    return masked, labels


def bounded_by_the_largest_id(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """randint(0, batch.max()): ids above those that the batch holds are never drawn."""

    class Bounded(Masker):
        def replace(self, ids: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
            return self.rng.integers(5, 15_000, shape)

    return Bounded()(ids)


def special_ids_drawn(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    class Any(Masker):
        def replace(self, ids: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
            return self.rng.integers(0, SIZE, shape)

    return Any()(ids)


def ids_beyond_the_vocabulary(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A rounded-up embedding size is taken for the vocabulary (transformers#15342)."""

    class Beyond(Masker):
        def replace(self, ids: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
            return self.rng.choice(np.append(ORDINARY, SIZE + np.arange(64)), shape)

    return Beyond()(ids)


def draw_reused(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The draw that selects decides the action too: below 0.15 is below 0.8."""
    return Masker(mask=1.0, random=0.0)(ids)


def tail_never_selected(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    class Tail(Masker):
        def maskable(self, ids: np.ndarray) -> np.ndarray:
            return (ids > 4) & (np.arange(ids.shape[1]) < ids.shape[1] - 20)

    return Tail()(ids)


def first_token_never_selected(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """range(1, n) where positions count from the first token."""

    class First(Masker):
        def maskable(self, ids: np.ndarray) -> np.ndarray:
            return (ids > 4) & (np.arange(ids.shape[1]) > 1)

    return First()(ids)


def cap_of_20(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """max_predictions_per_seq 20 at length 512 (albert#51)."""

    class Capped(Masker):
        def select(self, ids: np.ndarray) -> np.ndarray:
            selected = super().select(ids)
            keys = np.where(selected, self.rng.random(ids.shape), 2.0)
            return selected & (keys.argsort(axis=1).argsort(axis=1) < 20)

    return Capped()(ids)


def rate_of_selected(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Only what was replaced is counted as selected: 15 % times 0.9."""
    masked, labels = Masker()(ids)
    return masked, np.where(masked == ids, -100, labels)


def labels_shifted(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    masked, labels = Masker()(ids)
    return masked, np.roll(labels, 1, axis=1)


def labels_after_masking(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masking in place, the labels taken afterwards (transformers#243)."""
    masked, labels = Masker()(ids)
    return masked, np.where(labels == -100, -100, masked)


def labels_zero(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """0 for "not selected", which is the padding's id."""
    masked, labels = Masker()(ids)
    return masked, np.where(labels == -100, 0, labels)


def labels_unsigned(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    masked, labels = Masker()(ids)
    return masked, labels.astype(np.uint16).astype(np.int64)


def labels_int16(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    masked, labels = Masker()(ids)
    return masked, labels.astype(np.int16).astype(np.int64)


def unlabelled_masks(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mask tokens that the text brought along, or whose labels were lost."""
    masked, labels = Masker()(ids)
    lost = np.random.default_rng(3).random(ids.shape) < 0.0005
    return masked, np.where(lost, -100, labels)


def nested_shares(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """80 % of the selected, then 10 % of the rest: 80/2/18 (transformers#11838)."""
    return Masker(random=0.02)(ids)


def never_random(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return Masker(random=0.0)(ids)


def exact_instead_of_bernoulli(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return Exact()(ids)


def rate_drawn_by_row(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    class Uneven(Masker):
        def select(self, ids: np.ndarray) -> np.ndarray:
            rate = 0.15 + 0.05 * self.rng.choice([-1, 1], (len(ids), 1))
            return (self.draws(ids) < rate) & self.maskable(ids)

    return Uneven()(ids)


def spans_instead_of_tokens(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    class Spans(Masker):
        def draws(self, ids: np.ndarray) -> np.ndarray:
            return np.repeat(self.rng.random((len(ids), ids.shape[1] // 2)), 2, axis=1)

    return Spans()(ids)


def frequent_ids_never_selected(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stop words are left out, unsaid."""

    class Rare(Masker):
        def select(self, ids: np.ndarray) -> np.ndarray:
            rate = 0.15 / (ids != 8).mean()
            return (self.draws(ids) < rate) & self.maskable(ids) & (ids != 8)

    return Rare()(ids)


def words_half_masked(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Continuing pieces of a selected word are left out now and then (transformers#11768)."""
    whole = WholeWords()
    masked, labels = whole(ids)
    left = CONTINUING[ids] & (whole.rng.random(ids.shape) < 0.01)
    return np.where(left, ids, masked), np.where(left, -100, labels)


def long_words_less_often(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Words that no longer fit the budget are skipped, which are the long ones."""

    class Short(WholeWords):
        def select(self, ids: np.ndarray) -> np.ndarray:
            selected, words = super().select(ids), words_of(ids)
            length = np.apply_along_axis(np.bincount, 1, words, minlength=words.max() + 1)
            long = np.take_along_axis(length, words, axis=1) > 2
            drop = np.take_along_axis(self.rng.random((len(ids), words.max() + 1)) < 0.2, words, axis=1)
            return selected & ~(long & drop)

    return Short()(ids)


def same_replacement_everywhere(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    class Same(Masker):
        def replace(self, ids: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
            return np.broadcast_to(self.rng.choice(ORDINARY, (1, 40)), (1, 40))[:, self.rng.integers(0, 40, shape)][0]

    return Same()(ids)


def fewer_on_short_rows(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An exact count of the whole row's length, padding included."""

    class Long(Exact):
        def select(self, ids: np.ndarray) -> np.ndarray:
            keys = np.where(self.maskable(ids), self.rng.random(ids.shape), 2.0)
            return (keys.argsort(axis=1).argsort(axis=1) < 77) & self.maskable(ids)

    return Long()(ids)


WORDS = MaskRule(unit="word")
EXACT = MaskRule(selection="exact")
FAULTS: list[tuple[Callable[..., tuple[np.ndarray, np.ndarray]], str, MaskRule]] = [
    (repeated_by_workers, "repeated_masks", MaskRule()),
    (one_mask_a_batch, "neighbours", MaskRule()),
    (few_seeds, "repeated_masks", MaskRule()),
    (specials_selected, "specials", MaskRule()),
    (padding_selected, "specials", MaskRule()),
    (padding_overwritten, "rows", MaskRule()),
    (bounded_by_the_largest_id, "replacement_ids", MaskRule()),
    (special_ids_drawn, "replacements", MaskRule()),
    (ids_beyond_the_vocabulary, "replacements", MaskRule()),
    (same_replacement_everywhere, "replacement_ids", MaskRule()),
    (draw_reused, "mask_share", MaskRule()),
    (nested_shares, "random_share", MaskRule()),
    (never_random, "keep_share", MaskRule()),
    (tail_never_selected, "last_units", MaskRule()),
    (first_token_never_selected, "positions", MaskRule()),
    (cap_of_20, "selection_rate", MaskRule()),
    (rate_of_selected, "selection_rate", MaskRule()),
    (labels_shifted, "stray_masks", MaskRule()),
    (labels_after_masking, "specials", MaskRule()),
    (labels_zero, "specials", MaskRule()),
    (labels_unsigned, "labels", MaskRule()),
    (labels_int16, "labels", MaskRule()),
    (unlabelled_masks, "stray_masks", MaskRule()),
    (exact_instead_of_bernoulli, "row_variance", MaskRule()),
    (rate_drawn_by_row, "row_variance", MaskRule()),
    (spans_instead_of_tokens, "adjacent", MaskRule()),
    (frequent_ids_never_selected, "ids", MaskRule()),
    (words_half_masked, "whole_units", WORDS),
    (long_words_less_often, "unit_lengths", WORDS),
    (fewer_on_short_rows, "row_counts", EXACT),
]


def failing(path: Path, masked: np.ndarray, labels: np.ndarray, rule: MaskRule | None) -> set[str]:
    attention = (ROWS != PAD).astype(np.uint8)
    columns = {"input_ids": masked, "labels": labels, "attention_mask": attention}
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), path)
    result = verify_foreign(path, FACTS, rule, run=RunOptions(executor="serial"))
    return {check.name for check in result.checks if not check.ok}


@pytest.mark.parametrize(("masker", "check", "rule"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
def test_a_faulty_masker_is_found_by_the_right_check(
    tmp_path: Path, masker: Callable[..., tuple[np.ndarray, np.ndarray]], check: str, rule: MaskRule
) -> None:
    assert check in failing(tmp_path / "rows.parquet", *masker(ROWS), rule)


@pytest.mark.parametrize(
    ("masker", "rule"), [(Masker, None), (Masker, MaskRule()), (Exact, None), (Exact, EXACT), (WholeWords, WORDS)]
)
def test_a_right_masker_of_another_make_passes(tmp_path: Path, masker: type[Masker], rule: MaskRule | None) -> None:
    assert failing(tmp_path / "rows.parquet", *masker()(ROWS), rule) == set()


def test_the_documentation_names_every_fault_and_its_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()
    named = re.findall(r"^\| `([a-z0-9_]+)` \| [^|]+ \| `([a-z_]+)` \|$", page, re.MULTILINE)
    assert named == [(masker.__name__, check) for masker, check, _ in FAULTS]


def test_a_separator_ends_a_word() -> None:
    assert words_of(np.array([[7, SEP, 7, 7]])).tolist() == [[1, 2, 3, 3]]
