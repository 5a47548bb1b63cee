"""The error rate that `verify` states: of right data sets at most one in 10,000 is rejected."""

from __future__ import annotations

import numpy as np
import pytest
from rows_at_hand import make_rows, p_values

from clozeline.mask_function import MaskRule

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
