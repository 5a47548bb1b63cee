"""Tests of a tally against what the scheme promises.

Each gives a p-value that is exact or too large, never too small; a check fails below `ERROR_RATE` divided by the number of tests
(Bonferroni), so that a right data set is rejected at most once in 10,000.
"""

from __future__ import annotations

from math import inf, log2
from typing import TYPE_CHECKING

import numpy as np

from clozeline.verification.distributions import (
    bernstein_p,
    binomial_interval,
    binomial_p,
    chi_squared_p,
    gamma_p,
)
from clozeline.verification.findings import Check, Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.mask_function import MaskRule, MaskVocabulary
    from clozeline.verification.tally import Pairs, Tally

ERROR_RATE = 1e-4
_LEAST = 50.0  # variance of a cell of a chi-squared test
# Counts are skewed, so a sum of their squares has more in its upper tail than the distribution it is compared with: for Poisson
# counts of 50, four times as much at a p-value of 2e-6 where there are one or two cells, less where there are more.
_SKEW = 5.0
_FEWEST_GROUPS = 20  # for the variance between rows
_REPLACEMENT_BINS = 256


class ChanceTest:
    """One statistic before its limit is known."""

    def __init__(
        self,
        name: str,
        detail: str,
        problem: str,
        *,
        expected: float,
        observed: float,
        p_value: float,
        binomial: tuple[int, float] | None = None,
    ) -> None:
        self.name, self.detail, self.problem = name, detail, problem
        self.expected, self.observed, self.p_value, self.binomial = expected, observed, p_value, binomial

    def check(self, limit: float) -> Check:
        low: float | None = None
        high: float | None = None
        if self.binomial is not None:
            low, high = binomial_interval(*self.binomial, limit)
        ok = self.p_value >= limit
        within = f", within {low:.4%} to {high:.4%}" if low is not None and high is not None else ""
        sure = f"p {self.p_value:.2g}" if self.p_value > 0 else "p below 1e-300"
        return Check(
            name=self.name,
            ok=ok,
            detail=f"{self.detail} ({sure}{within})",
            problems=() if ok else (f"{self.problem}; a right data set is so far off with {sure}",),
            count=0 if ok else 1,
            statistic=Statistic(
                expected=self.expected, observed=self.observed, low=low, high=high, p_value=self.p_value, limit=limit
            ),
        )


def judge(tally: Tally, rule: MaskRule, vocabulary: MaskVocabulary, *, slack: int = 0) -> list[Check]:
    """The verdict of every test that the rows allow; arguments as for `find_tests`."""
    if not tally.units:
        return [Check(name="selection_rate", ok=True, detail="no position may be selected")]
    tests = find_tests(tally, rule, vocabulary, slack=slack)
    limit = ERROR_RATE / (len(tests) + 1)  # and one for repeated masks
    checks = [*(test.check(limit) for test in tests), _repeated(tally, limit)]
    if rule.selection == "exact" or rule.max_predictions is not None:
        rate = f"{tally.tokens / tally.maskable:.4%} of {tally.maskable:,} maskable tokens"
        asked = ", ".join(f"{p:.4g}" for p in rule.schedule)
        checks.insert(0, Check(name="effective_rate", ok=True, detail=f"{rate}; {asked} asked for"))
    return checks


def find_tests(tally: Tally, rule: MaskRule, vocabulary: MaskVocabulary, *, slack: int = 0) -> list[ChanceTest]:
    """Every test that the rows allow, but that of repeated masks.

    Args:
        rule: of the whole data set.
        slack: tokens by which an exact count of a row may differ, where the rounding is not known.
    """
    exact, capped = rule.selection == "exact", rule.max_predictions is not None
    tests: list[ChanceTest] = []
    if not exact and not capped:
        p = tally.expected / tally.units
        tests.append(
            _share("selection_rate", tally.chosen, tally.units, p, f"{rule.unit}s are selected", _cap_hint(tally))
        )
    elif rule.unit == "token":
        difference = tally.tokens - tally.tokens_expected
        tests.append(
            ChanceTest(
                "selection_rate",
                f"{tally.tokens:,} tokens selected, {tally.tokens_expected:,.1f} expected",
                f"{tally.tokens:,} tokens are selected, {tally.tokens_expected:,.1f} expected{_cap_hint(tally)}",
                expected=tally.tokens_expected,
                observed=tally.tokens,
                # Under a cap the count varies less than without it.
                p_value=(1.0 if abs(difference) < 0.5 + slack * tally.rows else 0.0)
                if exact
                else bernstein_p(difference, tally.variance, float(rule.max_predictions or 1)),
            )
        )
    tests.append(_cells("positions", tally.at, tally.at_expected, tally.at_variance, "position", "position"))
    for side, name in enumerate(("first", "last")):
        units, chosen, expected = tally.edges[side].tolist()
        if units:
            what = f"{rule.unit}s among a row's {name} 16 are selected"
            tests.append(_share(f"{name}_units", int(chosen), int(units), expected / units, what))
    number, picked, wanted = tally.by_id
    with np.errstate(invalid="ignore", divide="ignore"):
        pi = np.where(number > 0, wanted / number, 0)
    tests.append(_cells("ids", picked, wanted, wanted * (1 - pi), "id modulo 64", "id"))
    if not exact and not capped:
        if tally.square_count >= _FEWEST_GROUPS:
            tests.append(_variance(tally))
        tests.append(_empty(tally))
    tests += _actions(tally, rule, vocabulary)
    for name, pairs, what in (
        ("adjacent", tally.adjacent, "the neighbouring position"),
        ("neighbours", tally.neighbours, "the same position of the next row"),
        ("copies", tally.copies, "the same position of the next copy"),
        ("shards", tally.shards, "the same position of the next shard"),
    ):
        if pairs.trials:
            tests.append(_pairs(name, pairs, what))
    if rule.unit != "token" and not capped:
        tests.append(
            _cells(
                "unit_lengths",
                tally.lengths[1],
                tally.length_expected,
                tally.length_variance,
                f"tokens of a {rule.unit}",
                "length",
            )
        )
    if rule.unit == "span" and tally.span_words.any():
        wanted = np.zeros(len(tally.span_words))
        wanted[1 : rule.max_span + 1] = rule.span_distribution
        wanted *= tally.span_words.sum()
        tests.append(_cells("span_lengths", tally.span_words, wanted, wanted, "words of a span", "length"))
    return tests


def _share(name: str, hits: int, trials: int, probability: float, what: str, hint: str = "") -> ChanceTest:
    share = hits / trials if trials else 0.0
    seen = f"{share:.4%} of {trials:,} {what}, {probability:.4%} expected"
    return ChanceTest(
        name,
        seen,
        f"{seen}{hint}",
        expected=probability,
        observed=share,
        p_value=binomial_p(hits, trials, probability),
        binomial=(trials, probability),
    )


def _cap_hint(tally: Tally) -> str:
    most = int(np.flatnonzero(tally.row_tokens)[-1])
    if most and tally.row_tokens[most] > 0.2 * tally.rows:
        return f"; {int(tally.row_tokens[most]):,} of {tally.rows:,} rows have {most} selected tokens and none has more: a cap?"
    return ""


def _cells(
    name: str,
    observed: NDArray[np.generic],
    expected: NDArray[np.float64],
    variance: NDArray[np.float64],
    what: str,
    cell: str,
) -> ChanceTest:
    """Chi-squared of many counts, neighbours put together until each has a variance of at least 50."""
    group = _groups(variance)
    seen, mean, spread = (np.bincount(group, np.asarray(x, np.float64)) for x in (observed, expected, variance))
    used = spread > 0.99 * _LEAST  # all, or there is but one and it says too little
    impossible = (spread < 1e-6) & (np.abs(seen - mean) > 0.5)
    value = float(((seen[used] - mean[used]) ** 2 / spread[used]).sum())
    p_value = 0.0 if impossible.any() else _sum_of_squares_p(value, int(used.sum()))
    off = np.where(used, (seen - mean) / np.sqrt(np.maximum(spread, 1e-300)), np.where(impossible, inf, 0))
    worst = int(np.argmax(np.abs(off)))
    places = np.flatnonzero(group == worst)
    where = f"{places[0]}" if len(places) == 1 else f"{places[0]} to {places[-1]}"
    return ChanceTest(
        name,
        f"chi-squared {value:,.1f} over {int(used.sum())} cells by {what}",
        f"uneven by {what}: at {cell} {where} there are {seen[worst]:,.0f}, {mean[worst]:,.1f} expected",
        expected=float(used.sum()),
        observed=value,
        p_value=p_value,
    )


def _groups(weights: NDArray[np.float64], least: float = _LEAST) -> NDArray[np.intp]:
    """The group of each cell: as few neighbours as weigh `least` together, what is left over in the last group."""
    sums, ends, reached = np.cumsum(weights), [], 0.0
    while (end := int(np.searchsorted(sums, reached + least))) < len(sums):
        ends.append(end)
        reached = float(sums[end])
    return np.searchsorted(np.array(ends[:-1], np.intp), np.arange(len(weights)))


def _sum_of_squares_p(value: float, cells: int) -> float:
    return min(1.0, _SKEW * chi_squared_p(value, cells))


def _variance(tally: Tally) -> ChanceTest:
    mean = float(tally.square_count)
    variance = 2.0 * mean + tally.square_excess
    ratio = tally.squares / mean
    kind = "less: an exact number a row?" if ratio < 1 else "more: rows are masked at different rates, or in clusters"
    return ChanceTest(
        "row_variance",
        f"counts of rows vary {ratio:.4f} times as much as independent draws",
        f"counts of rows vary {ratio:.4f} times as much as independent draws, {kind}",
        expected=1.0,
        observed=ratio,
        p_value=min(1.0, _SKEW * gamma_p(tally.squares, mean, variance)),
    )


def _empty(tally: Tally) -> ChanceTest:
    probability = tally.empty_expected / tally.empty_rows
    seen = f"{tally.empty:,} of {tally.empty_rows:,} rows have nothing selected, {tally.empty_expected:.3g} expected"
    return ChanceTest(
        "empty_rows",
        seen,
        seen,
        expected=tally.empty_expected,
        observed=tally.empty,
        p_value=binomial_p(tally.empty, tally.empty_rows, probability),
    )


def _actions(tally: Tally, rule: MaskRule, vocabulary: MaskVocabulary) -> list[ChanceTest]:
    total = int(tally.actions.sum())
    if not total:
        return []
    each = "selected tokens" if rule.action_unit == "token" else f"selected {rule.unit}s"
    masked, random, kept = tally.actions.tolist()
    count = int(tally.originals.sum())
    drawn_equal = tally.equal / total
    random_share = rule.random_token_prob * (1 - drawn_equal)
    tests = [
        _share("mask_share", masked, total, rule.mask_token_prob, f"{each} are the mask token"),
        _share("random_share", random, total, random_share, f"{each} are a random token"),
        _share("keep_share", kept, total, 1 - rule.mask_token_prob - random_share, f"{each} keep their token"),
    ]
    ordinary = vocabulary.ordinary_ids
    draws = int(tally.drawn[ordinary].sum())  # of others the check of replacements tells
    probabilities = vocabulary.draw_probabilities
    # A draw equal to the original is seen as kept: of each id, the draws for other ids remain.
    expected = probabilities * (count - tally.originals)
    if draws and expected.sum() > 0:
        expected *= draws / expected.sum()
        seen, wanted = tally.drawn[ordinary], expected[ordinary]
        group = _groups(wanted, max(draws / _REPLACEMENT_BINS, _LEAST))
        observed, mean = np.bincount(group, seen), np.bincount(group, wanted)
        used = mean > 0
        value = float(((observed[used] - mean[used]) ** 2 / mean[used]).sum())
        worst = int(np.argmax(np.where(used, np.abs(observed - mean) / np.sqrt(np.maximum(mean, 1e-9)), 0)))
        near = ordinary[group == worst]
        tests.append(
            ChanceTest(
                "replacement_ids",
                f"chi-squared {value:,.1f} over {int(used.sum())} ranges of ids for {draws:,} random tokens",
                f"of {draws:,} random tokens {observed[worst]:,.0f} have ids {near[0]} to {near[-1]}, {mean[worst]:,.1f} expected",
                expected=float(used.sum()),
                observed=value,
                p_value=_sum_of_squares_p(value, int(used.sum())),
            )
        )
    return tests


def _pairs(name: str, pairs: Pairs, what: str) -> ChanceTest:
    p = pairs.expected / pairs.trials
    return _share(name, pairs.hits, pairs.trials, p, f"selected units are selected in {what} too")


def _repeated(tally: Tally, limit: float) -> Check:
    count, pairs = tally.sketch.repeated()
    looked = tally.sketch.looked_at
    detail = f"{looked:,} mask patterns, no two alike" if not count else f"{looked:,} mask patterns, {count:,} repeated"
    chance = looked * looked / 2.0 * 2.0**-tally.sketch.needed
    problems = tuple(
        f"copy {a[0]}, shard {a[1]}, row {a[2]} and copy {b[0]}, shard {b[1]}, row {b[2]} select the same positions"
        + (f" from {128 * a[3]} on" if a[3] else "")
        for a, b in pairs
    )
    return Check(
        name="repeated_masks",
        ok=not count,
        detail=f"{detail} (p {min(1.0, chance):.2g} for any)",
        problems=problems,
        count=count,
        statistic=Statistic(expected=0.0, observed=count, low=0.0, high=0.0, p_value=min(1.0, chance), limit=limit),
    )


def needed_bits(windows: int) -> float:
    """Bits that a pattern must say, for all patterns of a right data set to differ but once in a million."""
    return 2 * log2(max(windows, 2)) + 19
