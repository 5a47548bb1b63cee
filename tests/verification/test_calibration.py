"""The error rate that `verify` states: of right data sets at most one in 10,000 is rejected."""

from __future__ import annotations

from math import exp, lgamma, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows_at_hand import make_rows, p_values

from clozeline.mask_function import MaskRule
from clozeline.verification import statistics

SEEDS = 1000
FULL = make_rows(60, 128)
SHORT = make_rows(120, 48, short=True)
SCHEMES = {
    "bernoulli": MaskRule(),
    "exact": MaskRule(selection="exact"),
    "short rows": MaskRule(),
    "short rows, exact": MaskRule(selection="exact"),
    "two rates": MaskRule(mask_prob=(0.3, 0.15)),
    "words": MaskRule(unit="word"),
    "words, exact": MaskRule(unit="word", selection="exact"),
    "spans": MaskRule(unit="span", action_unit="unit"),
    "spans, exact": MaskRule(unit="span", selection="exact", span_lengths="inverse", max_span=3),
    "capped": MaskRule(max_predictions=20),
    "words, capped": MaskRule(unit="word", max_predictions=20),
    "by frequency": MaskRule(replacement="frequency"),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_right_masks_are_rejected_no_more_often_than_stated(scheme: str) -> None:
    """1,000 seeds. The bounds are those of a binomial at the stated rate that holds in all but one of 10,000 runs."""
    corrected = np.empty(SEEDS)
    for seed in range(SEEDS):
        rows = SHORT if scheme.startswith("short") else FULL
        tests, repeated = p_values(rows, SCHEMES[scheme], seed, copies=2 if scheme == "two rates" else 1)
        corrected[seed] = min(1.0, min(tests.values()) * (len(tests) + 1)) if not repeated else 0.0
    assert (corrected < 1e-4).sum() <= 2
    assert (corrected < 0.05).sum() <= 50 + 3.72 * np.sqrt(50 * 0.95)
    assert (corrected < 0.5).any()  # the tests do look at something


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize("selection", ["bernoulli", "exact"])
@pytest.mark.parametrize("cap", [None, 10, 40])
def test_no_bias_is_hidden_by_few_rows(unit: str, selection: str, cap: int | None) -> None:
    """Of a capped row's n units with k selected, (k - 1) / (n - 1) of the others are, not k / n: with more rows, all capped data
    was rejected."""
    rule = MaskRule(unit=unit, selection=selection, max_predictions=cap)
    tests, repeated = p_values(make_rows(400, 256), rule, 3, copies=30)
    assert min(tests.values()) * (len(tests) + 1) > 1e-3, tests
    assert not repeated


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize("selection", ["bernoulli", "exact"])
@pytest.mark.parametrize(
    "probabilities", [(0.0, 0.8, 0.1), (1.0, 1.0, 0.0), (1.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.5, 0.0, 0.5)]
)
def test_rates_of_0_and_1_are_right_too(unit: str, selection: str, probabilities: tuple[float, float, float]) -> None:
    rate, mask_share, random_share = probabilities
    rule = MaskRule(
        unit=unit, selection=selection, mask_prob=rate, mask_token_prob=mask_share, random_token_prob=random_share
    )
    tests, repeated = p_values(FULL, rule, 1)
    assert min(tests.values()) * (len(tests) + 1) > 1e-4
    assert not repeated


@pytest.mark.parametrize("cells", [1, 2, 8, 64])
def test_a_sum_of_squares_is_as_rare_as_its_p_value_says(cells: int) -> None:
    """Counts are skewed: of few Poisson counts of 50 a chi-squared test rejects up to four times as often as it says."""
    squares = np.zeros(2**17)
    for count in range(300):
        squares[(count - 50) ** 2] += exp(count * log(50) - 50 - lgamma(count + 1))
    chance = np.maximum(np.fft.irfft(np.fft.rfft(squares) ** cells), 0)
    for limit in (1e-4, 1e-5, 7e-6):
        rejected = next(s for s in range(50 * cells, 2**17) if statistics._sum_of_squares_p(s / 50, cells) < limit)
        assert chance[rejected:].sum() <= limit


@settings(deadline=None, max_examples=50)
@given(
    weights=st.lists(st.one_of(st.just(0.0), st.floats(0, 3), st.floats(0, 500)), min_size=1, max_size=60),
    least=st.floats(1, 60),
)
def test_cells_are_put_together_until_they_weigh_enough(weights: list[float], least: float) -> None:
    """[19.8, 0.4, 1000] were three cells of at least 20 once."""
    group = statistics._groups(np.array(weights), least)
    assert group[0] == 0
    assert set(np.diff(group).tolist()) <= {0, 1}
    sums = np.bincount(group, weights)
    assert len(sums) == 1 or sums.min() >= least * (1 - 1e-9)


def test_a_handful_of_rows_proves_nothing() -> None:
    """One of ten tokens selected at a rate of 0.001 happens in one of a hundred data sets."""
    rule = MaskRule(mask_prob=0.001)
    rows = np.tile([2, *range(5, 15), 3], (1, 1))
    surprised = 0
    for seed in range(2000):
        tests, _ = p_values(rows, rule, seed)
        surprised += min(tests.values()) * (len(tests) + 1) < 1e-4
    assert surprised == 0
