"""Rows, a vocabulary and maskers for tests of the statistics, made on the spot."""

from __future__ import annotations

import numpy as np

from clozeline.mask_function import MaskRule, MaskVocabulary, mask_rows
from clozeline.seeds import SPANS, row_words
from clozeline.store.manifest import TokenizerFacts, to_bits
from clozeline.store.masks import TokenCounts, mask_vocabulary
from clozeline.verification.marks import Marks
from clozeline.verification.sketch import Sketch
from clozeline.verification.statistics import find_tests, needed_bits
from clozeline.verification.tally import Tally

SIZE = 40_000  # more than int16 holds
PAD, UNK, CLS, SEP, MASK = range(5)
FACTS = TokenizerFacts(
    sha256="",
    vocabulary_sha256="",
    vocabulary_size=SIZE,
    mask_id=MASK,
    pad_id=PAD,
    unk_id=UNK,
    separator_id=SEP,
    prefix_ids=(CLS,),
    suffix_ids=(SEP,),
    pair_ids=((CLS,), (SEP,), (SEP,)),
    special_ids=(PAD, UNK, CLS, SEP, MASK),
    ordinary_ranges=((5, 20_000), (20_010, SIZE - 1)),  # with a hole
    continuing=to_bits(set(range(7, SIZE, 4))),
)


def make_rows(rows: int, length: int, seed: int = 0, *, padded: float = 0.05, short: bool = False) -> np.ndarray:
    """int64 (rows, length): ids by Zipf's law, separators here and there, some rows padded; or all rows short."""
    rng = np.random.default_rng(seed)
    ids = 5 + np.minimum(rng.zipf(1.2, (rows, length)) - 1 + rng.integers(0, 40, (rows, length)), SIZE - 6)
    ids[(ids > 20_000) & (ids < 20_010)] = 5
    ids[rng.random((rows, length)) < 0.004] = SEP
    ids[:, 0], ids[:, -1] = CLS, SEP
    for row in np.flatnonzero(rng.random(rows) < (1.0 if short else padded)):
        end = int(rng.integers(3, length if not short else length // 2))
        ids[row, end] = SEP
        ids[row, end + 1 :] = PAD
    return ids


def counts_of(ids: np.ndarray) -> TokenCounts:
    return TokenCounts(np.bincount(ids.reshape(-1), minlength=SIZE))


def p_values(ids: np.ndarray, rule: MaskRule, seed: int, copies: int = 1) -> tuple[dict[str, float], int]:
    """Every test's p-value on masks that the mask function makes, and the repeated patterns."""
    vocabulary = mask_vocabulary(FACTS, rule, counts_of(ids) if rule.replacement == "frequency" else None)
    tally = tally_of(ids, rule, vocabulary, seed, copies)
    tests = find_tests(tally, rule, vocabulary)
    return {test.name: test.p_value for test in tests}, tally.sketch.repeated()[0]


def tally_of(ids: np.ndarray, rule: MaskRule, vocabulary: MaskVocabulary, seed: int, copies: int) -> Tally:
    count, length = ids.shape
    tally = Tally(Sketch(needed_bits(copies * count * -(-length // 128))), length, SIZE)
    shards, rows = np.zeros(count, int), np.arange(count)
    before: Marks | None = None
    for copy in range(copies):
        masked = mask_rows(ids, rule, vocabulary, seed=seed, copy=copy, shards=shards, rows=rows)
        spans = row_words(seed, copy, shards, rows, length, domain=SPANS) if rule.unit == "span" else None
        one = rule.for_copy(copy)
        marks = Marks(ids, masked.labels, one, vocabulary, None, spans, own_share=False)
        tally.see(masked.ids, masked.labels, ids, marks, one, vocabulary)
        tally.sketch.see(marks.selected, marks.units, copy, 0, 0)
        if before is not None:
            tally.copies.see(before.at, marks)
        before = marks
    return tally
