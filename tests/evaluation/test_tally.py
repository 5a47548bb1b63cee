"""Sums that are the same in any order, and the groupings made of them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeline.evaluation.breakdown import frequency_deciles
from clozeline.evaluation.interval import ratio_standard_error
from clozeline.evaluation.tally import LARGEST, Tally, TokenScores

losses = st.lists(st.floats(0, 1e6, allow_subnormal=False), max_size=60)


def scores(values: list[float]) -> TokenScores:
    return TokenScores(np.array(values, np.float64), np.arange(len(values)) % 6)


@settings(deadline=None, max_examples=80)
@given(losses, st.randoms(use_true_random=False), st.integers(1, 5))
def test_sums_are_the_same_in_any_order_and_division(values: list[float], random: object, parts: int) -> None:
    groups = np.arange(len(values)) % 3
    whole = Tally(3)
    whole.add(groups, scores(values))
    order = list(range(len(values)))
    random.shuffle(order)
    merged = Tally(0)
    above = np.arange(len(values)) % 6
    for part in range(parts):
        here = order[part::parts]
        tally = Tally(3)
        tally.add(groups[here], TokenScores(np.array(values, np.float64)[here], above[here]))
        merged.merge(tally.table)
    assert (merged.table == whole.table).all()
    assert whole.sums().tobytes() == merged.sums().tobytes()


@settings(deadline=None, max_examples=80)
@given(losses)
def test_a_mean_is_the_rounded_exact_mean(values: list[float]) -> None:
    tally = Tally(1)
    tally.add(np.zeros(len(values), np.int64), scores(values))
    if not values:
        assert math.isnan(tally.means()[0])
        return
    exact = sum(map(Fraction, values)) / len(values)
    assert abs(Fraction(tally.means()[0]) - exact) <= Fraction(1, 2**48) + exact * Fraction(1, 2**52)


def test_what_float64_loses_is_kept() -> None:
    values = [1e6, *[1e-9] * 1000]
    tally = Tally(1)
    tally.add(np.zeros(len(values), np.int64), scores(values))
    assert tally.sums()[0] == 1e6 + 1e-6


def test_losses_that_are_not_finite_are_counted_and_spoil_their_group_only() -> None:
    tally = Tally(2)
    values = [1.0, float("nan"), float("inf"), 2 * LARGEST, 2.0]
    tally.add(np.array([0, 1, 1, 1, 0]), scores(values))
    assert tally.means()[0] == 1.5
    assert math.isnan(tally.means()[1])
    assert tally.not_finite.tolist() == [0, 3]
    assert tally.count.tolist() == [2, 3]
    assert math.isnan(tally.total().means()[0])


def test_deciles_hold_a_tenth_of_the_text_each() -> None:
    counts = np.array([0, *range(1000, 0, -1)])
    deciles = frequency_deciles(counts, [])
    for decile in range(10):
        assert abs(counts[deciles == decile].sum() / counts.sum() - 0.1) < 0.002
    assert (np.diff(deciles[1:]) >= 0).all()
    first, tenth = ((deciles[1:] == d).sum() for d in (0, 9))
    assert first < tenth, "few frequent ids, many rare ones"


def test_special_ids_take_no_share_of_the_deciles() -> None:
    counts = np.array([10**6, *[10] * 100])
    assert np.bincount(frequency_deciles(counts, [0, 5000])[1:]).tolist() == [10] * 10


def test_rows_without_selected_tokens_count_as_rows() -> None:
    sums, counts = np.array([1.0, 3.0, 0.0]), np.array([1, 1, 0])
    assert ratio_standard_error(sums, counts) == math.sqrt(3 / 2 * 2) / 2
    assert ratio_standard_error(sums[:1], counts[:1]) is None
    assert ratio_standard_error(np.zeros(5), np.zeros(5, np.int64)) is None
