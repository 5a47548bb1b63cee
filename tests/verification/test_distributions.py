"""Tail probabilities, against values of scipy 1.17 and against sums."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeline.verification.distributions import (
    beta_below,
    binomial_interval,
    binomial_p,
    chi_squared_p,
    gamma_above,
    gamma_below,
)


@settings(deadline=None, max_examples=100)
@given(trials=st.integers(1, 60), share=st.floats(0.01, 0.99), data=st.data())
def test_binomial_tails_are_sums(trials: int, share: float, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, trials))
    chances = [comb(trials, i) * share**i * (1 - share) ** (trials - i) for i in range(trials + 1)]
    wanted = min(1.0, 2 * min(sum(chances[: k + 1]), sum(chances[k:])))
    assert binomial_p(k, trials, share) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(
    ("found", "wanted"),  # scipy.special.betainc, gammaincc, gammainc; scipy.stats.chi2.sf, binom.sf
    [
        (beta_below(3, 5, 0.2), 0.14803200000000005),
        (beta_below(1500, 8500, 0.15), 0.5026069889904412),
        (beta_below(1600, 8400, 0.15), 0.0028080016282790764),
        (beta_below(153000, 850000, 0.15), 5.651441073244154e-13),
        (beta_below(2, 1000000.0, 1e-07), 0.004678845137050587),
        (beta_below(900, 9100, 0.15), 1.0),
        (gamma_above(0.5, 12.0), 9.63357008643095e-07),
        (gamma_above(255, 600.0), 1.5605485849460282e-57),
        (gamma_above(255, 255.0), 0.4916722419361145),
        (gamma_above(255, 150.0), 0.9999999999999959),
        (gamma_above(5000, 5400.0), 1.72066319632398e-08),
        (gamma_above(20000.0, 21000.0), 1.714866608575403e-12),
        (gamma_below(0.5, 1e-09), 3.568248231116126e-05),
        (gamma_below(255, 150.0), 4.107941864516546e-15),
        (gamma_below(5000, 4600.0), 3.115926965227709e-09),
        (chi_squared_p(700.0, 510), 4.1913457898915895e-08),
    ],
)
def test_values_of_scipy(found: float, wanted: float) -> None:
    assert found == pytest.approx(wanted, rel=1e-8)


def test_the_interval_is_what_the_test_does_not_reject() -> None:
    low, high = binomial_interval(5000, 0.15, 1e-5)
    inside = [k for k in range(5001) if binomial_p(k, 5000, 0.15) >= 1e-5]
    assert (low * 5000, high * 5000) == pytest.approx((inside[0], inside[-1]))


def test_certain_events() -> None:
    assert binomial_p(0, 10, 0.0) == binomial_p(10, 10, 1.0) == 1.0
    assert binomial_p(1, 10, 0.0) == binomial_p(9, 10, 1.0) == 0.0
