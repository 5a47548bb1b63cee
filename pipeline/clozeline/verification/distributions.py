"""Tail probabilities of the binomial, Poisson, chi-squared and gamma distributions, by the incomplete beta and gamma functions.

Continued fractions and series as in Press et al., "Numerical Recipes" (3rd edition, sections 6.2 and 6.4), in double precision:
relative errors are below 1e-8 up to a million trials and grow with the logarithms of the factorials, to 1e-6 at a billion.
"""

from __future__ import annotations

from math import exp, lgamma, log, log1p, sqrt
from statistics import NormalDist

_TINY = 1e-300
_STEPS = 100_000


def _beta_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0) or _TINY)
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for step in (even, odd):
            d = 1.0 / (1.0 + step * d or _TINY)
            c = 1.0 + step / c or _TINY
            change = c * d
            value *= change
        if abs(change - 1.0) < 1e-15:
            break
    return value


def beta_below(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def gamma_above(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function Q(a, x)."""
    if x <= 0.0:
        return 1.0
    front = exp(a * log(x) - x - lgamma(a))
    if x < a + 1.0:
        term = total = 1.0 / a
        for n in range(1, _STEPS):
            term *= x / (a + n)
            total += term
            if term < total * 1e-16:
                break
        return max(0.0, 1.0 - front * total)
    b = x + 1.0 - a
    c, d = 1.0 / _TINY, 1.0 / (b or _TINY)
    value = d
    for n in range(1, _STEPS):
        step = -n * (n - a)
        b += 2.0
        d = 1.0 / (step * d + b or _TINY)
        c = b + step / c or _TINY
        value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * value


def gamma_below(a: float, x: float) -> float:
    """1 - Q(a, x), exact where it is small."""
    if x <= 0.0:
        return 0.0
    if x < a + 1.0:
        term = total = 1.0 / a
        for n in range(1, _STEPS):
            term *= x / (a + n)
            total += term
            if term < total * 1e-16:
                break
        return exp(a * log(x) - x - lgamma(a)) * total
    return 1.0 - gamma_above(a, x)


def binomial_p(observed: int, trials: int, probability: float) -> float:
    """Two-sided p-value, twice the smaller tail. Of trials with unlike probabilities the mean one gives an upper bound (Hoeffding
    1956, theorem 4)."""
    if trials <= 0 or probability <= 0.0 or probability >= 1.0:
        certain = 0 if probability <= 0.0 else trials
        return 1.0 if observed == certain or trials <= 0 else 0.0
    at_least = 1.0 if observed <= 0 else beta_below(observed, trials - observed + 1, probability)
    at_most = 1.0 if observed >= trials else beta_below(trials - observed, observed + 1, 1.0 - probability)
    return min(1.0, 2.0 * min(at_least, at_most))


def binomial_interval(trials: int, probability: float, limit: float) -> tuple[float, float]:
    """The shares of successes that `binomial_p` does not reject at `limit`; by the normal distribution from 100,000 trials on."""
    if trials <= 0:
        return 0.0, 1.0
    if trials >= 100_000 and 0 < probability < 1:
        half = NormalDist().inv_cdf(1 - limit / 2) * sqrt(probability * (1 - probability) / trials)
        return max(0.0, probability - half), min(1.0, probability + half)

    def edge(inside: int, outside: int) -> int:
        while abs(inside - outside) > 1:
            middle = (inside + outside) // 2
            if binomial_p(middle, trials, probability) >= limit:
                inside = middle
            else:
                outside = middle
        return inside

    mean = min(trials, max(0, round(trials * probability)))
    return edge(mean, -1) / trials, edge(mean, trials + 1) / trials


def chi_squared_p(value: float, freedom: float) -> float:
    """Chance of a larger value."""
    return gamma_above(freedom / 2.0, value / 2.0) if freedom > 0 else 1.0


def gamma_p(value: float, mean: float, variance: float) -> float:
    """Two-sided p-value of a sum of squares with this mean and variance, taken as gamma distributed."""
    shape, scale = mean * mean / variance, variance / mean
    return min(1.0, 2.0 * min(gamma_above(shape, value / scale), gamma_below(shape, value / scale)))


def bernstein_p(difference: float, variance: float, most: float) -> float:
    """Upper bound of a two-sided p-value for a sum of independent terms with this total variance, none off by more than `most`."""
    return min(1.0, 2.0 * exp(-(difference * difference) / (2.0 * (variance + most * abs(difference) / 3.0) or _TINY)))
