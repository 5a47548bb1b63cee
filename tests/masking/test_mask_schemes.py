"""What each masking scheme promises, and its published digest."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mask_schemes import SCHEMES

from clozeline.errors import ConfigError, DataError
from clozeline.mask_function import IGNORE, MaskRule, MaskVocabulary, check_cap, mask_rows
from clozeline.mask_function.units import find_units
from clozeline.seeds import SPANS, row_words

DOCS = Path(__file__).parents[2] / "docs" / "mask.md"
CONTINUING = np.arange(100) % 3 == 2


def vocabulary_for(rule: MaskRule) -> MaskVocabulary:
    """0..99, special 0..4, mask id 4; ids that are 2 modulo 3 continue words; counts fall with the id."""
    protected = {i for a, b in rule.never_select for i in range(a, b + 1)}
    undrawn = [i for a, b in rule.never_draw for i in range(a, b + 1)]
    ordinary = np.setdiff1d(np.arange(5, 100), undrawn)
    return MaskVocabulary(
        mask_id=4,
        special_ids=tuple(sorted({0, 1, 2, 3, 4} | protected)),
        ordinary_ids=ordinary,
        continuing=CONTINUING,
        counts=(1000 // (ordinary - 4)) if rule.replacement == "frequency" else None,
    )


def vector_rows() -> np.ndarray:
    """64 rows of 128: [2, 5 + (31 r + 7 t + t t) % 95 for t in 0..125, 3], a 3 at every 50th, the last row padded from 60 on."""
    t = np.arange(126)
    ids = np.stack([np.concatenate([[2], 5 + (31 * r + 7 * t + t * t) % 95, [3]]) for r in range(64)])
    ids[:, 50::50] = 3
    ids[63, 60:] = 0
    return ids


def masked(ids: np.ndarray, rule: MaskRule, seed: int = 42, copy: int = 0, shard: int = 3, **options: object) -> tuple:
    rows = np.arange(len(ids))
    return mask_rows(
        ids, rule, vocabulary_for(rule), seed=seed, copy=copy, shards=np.full(len(ids), shard), rows=rows, **options
    )


def digest(rule: MaskRule) -> str:
    """sha256 over copies 0 and 1 of masked ids and labels, little-endian int64."""
    sha = hashlib.sha256()
    for copy in (0, 1):
        result = masked(vector_rows(), rule, copy=copy)
        sha.update(result.ids.astype("<i8").tobytes() + result.labels.astype("<i8").tobytes())
    return sha.hexdigest()


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_has_the_digest_that_the_documentation_gives(name: str) -> None:
    published = dict(re.findall(r"^\| `([a-z-]+)` \|.*`([0-9a-f]{64})` \|$", DOCS.read_text(), re.MULTILINE))
    assert set(published) == set(SCHEMES)
    assert digest(SCHEMES[name]) == published[name]


@st.composite
def rows(draw: st.DrawFn) -> np.ndarray:
    length = draw(st.integers(1, 50))
    row = st.lists(st.integers(0, 99), min_size=length, max_size=length)
    return np.array(draw(st.lists(row, min_size=1, max_size=4)))


@pytest.mark.parametrize("name", SCHEMES)
@settings(deadline=None, max_examples=25)
@given(ids=rows(), seed=st.integers(0, 2**64 - 1), copy=st.integers(0, 3))
def test_any_rows_unmask_and_nothing_protected_is_touched(name: str, ids: np.ndarray, seed: int, copy: int) -> None:
    rule = SCHEMES[name]
    vocabulary = vocabulary_for(rule)
    result = masked(ids, rule, seed=seed, copy=copy)
    selected = result.labels != IGNORE
    assert (np.where(selected, result.labels, result.ids) == ids).all()
    assert vocabulary.maskable[ids[selected]].all()
    changed = result.ids[result.ids != ids]
    assert np.isin(changed, [4, *vocabulary.ordinary_ids.tolist()]).all()
    if rule.max_predictions is not None:
        assert (selected.sum(axis=1) <= rule.max_predictions).all()


@pytest.mark.parametrize("name", SCHEMES)
def test_rows_do_not_depend_on_the_rows_masked_with_them(name: str) -> None:
    ids, rule = vector_rows(), SCHEMES[name]
    together = masked(ids, rule, copy=1)
    order = np.random.default_rng(1).permutation(len(ids))
    apart = mask_rows(ids[order], rule, vocabulary_for(rule), seed=42, copy=1, shards=np.full(len(ids), 3), rows=order)
    assert (apart.ids == together.ids[order]).all()
    assert (apart.labels == together.labels[order]).all()


def units_of(ids: np.ndarray, rule: MaskRule, seed: int = 42, copy: int = 0) -> object:
    shards, numbers = np.full(len(ids), 3), np.arange(len(ids))
    words = row_words(seed, copy, shards, numbers, ids.shape[1], domain=SPANS)
    return find_units(ids, rule, vocabulary_for(rule), span_words=words)


@pytest.mark.parametrize(
    "name", ["whole-word", "whole-word-exact", "spans", "spans-exact-action", "n-grams", "capped-words"]
)
def test_units_are_selected_whole_or_not_at_all(name: str) -> None:
    ids, rule = vector_rows(), SCHEMES[name]
    units = units_of(ids, rule)
    selected = masked(ids, rule).labels.reshape(-1)[units.positions] != IGNORE
    inside = np.bincount(units.unit, selected)
    assert set(np.unique(inside / units.tokens)) == {0.0, 1.0}
    assert (units.tokens > 1).any()


def test_words_are_what_the_prefix_says_and_end_at_specials_and_protected_ids() -> None:
    ids = np.array(
        [[8, 6, 8, 11, 3, 11, 7, 2]]
    )  # continuing, start, continuing, continuing, [SEP], continuing, start, [CLS]
    rule = MaskRule(unit="word")
    assert units_of(ids, rule).first.tolist() == [0, 1, 5, 6]
    protecting = MaskRule(unit="word", never_select=((11, 11),))
    assert units_of(ids, protecting).first.tolist() == [0, 1, 6]
    given_starts = find_units(ids, rule, vocabulary_for(rule), word_starts=np.array([[1, 0, 0, 1, 1, 1, 0, 0]]))
    assert given_starts.first.tolist() == [0, 3, 5]


@pytest.mark.parametrize("unit", ["word", "span"])
def test_an_exact_budget_is_met_give_or_take_a_unit_and_favours_no_length(unit: str) -> None:
    """Long words are selected as often as short ones, and the tokens of all rows add up to the budget."""
    rule = MaskRule(unit=unit, selection="exact")
    ids = np.tile(vector_rows()[:8], (400, 1))
    result = masked(ids, rule)
    tokens = (result.labels != IGNORE).sum(axis=1)
    units = units_of(ids, rule)
    budget = np.array([rule.budget(n) for n in units.maskable.tolist()])
    longest = np.zeros(len(ids), int)
    np.maximum.at(longest, units.rows, units.tokens)
    assert (np.abs(tokens - budget) < longest).all()
    assert abs(tokens.sum() / budget.sum() - 1) < 0.003
    picked = result.labels.reshape(-1)[units.first] != IGNORE
    pi = (budget / units.maskable)[units.rows]
    for size in np.unique(units.tokens):
        of_size = units.tokens == size
        if of_size.sum() > 2000:
            error = (picked[of_size].mean() - pi[of_size].mean()) / np.sqrt(0.13 / of_size.sum())
            assert abs(error) < 4.5, size


@pytest.mark.parametrize("rule", [MaskRule(unit="span"), MaskRule(unit="span", span_lengths="inverse", max_span=3)])
def test_span_lengths_have_their_distribution(rule: MaskRule) -> None:
    """On rows of one-token words without a break, where a span is as long as it was drawn but for the last of a row."""
    ids = np.full((500, 256), 6)
    units = units_of(ids, rule)
    whole = np.append(units.rows[1:] == units.rows[:-1], False)
    whole &= units.first % 256 < 200  # those that reach the end are cut
    found = np.bincount(units.tokens[whole], minlength=rule.max_span + 1)[1:]
    wanted = np.array(rule.span_distribution)
    spread = np.sqrt(wanted * (1 - wanted) * found.sum())
    assert (np.abs(found - wanted * found.sum()) < 4.5 * spread).all()


def test_the_geometric_lengths_are_those_of_the_paper() -> None:
    """SpanBERT, section 3.1: p 0.2, at most 10, 3.8 words on average."""
    rule = MaskRule(unit="span")
    mean = sum(n * p for n, p in enumerate(rule.span_distribution, 1))
    assert round(mean, 1) == 3.8


def test_one_action_for_a_unit() -> None:
    ids, rule = vector_rows(), SCHEMES["spans-exact-action"]
    result, units = masked(ids, rule), units_of(ids, rule)
    is_mask = (result.ids == 4).reshape(-1)[units.positions]
    share = np.bincount(units.unit, is_mask) / units.tokens
    assert set(np.unique(share)) == {0.0, 1.0}


def test_replacements_follow_their_frequency() -> None:
    rule = MaskRule(mask_prob=1.0, mask_token_prob=0.0, random_token_prob=1.0, replacement="frequency")
    vocabulary = vocabulary_for(rule)
    drawn = masked(np.full((800, 128), 50), rule).ids
    found = np.bincount(drawn.reshape(-1), minlength=100)[5:] / drawn.size
    wanted = vocabulary.counts / vocabulary.counts.sum()
    assert np.abs(found - wanted).max() < 5 * np.sqrt(0.25 / drawn.size)


def test_a_schedule_gives_each_copy_its_rate_and_the_last_to_all_others() -> None:
    ids = np.full((300, 128), 50)
    rates = [(masked(ids, SCHEMES["schedule"], copy=c).labels != IGNORE).mean() for c in range(4)]
    assert rates == pytest.approx([0.3, 0.15, 0.15, 0.15], abs=0.01)
    single = masked(ids, MaskRule(mask_prob=0.15), copy=1)
    assert (single.labels == masked(ids, SCHEMES["schedule"], copy=1).labels).all()


def test_a_cap_that_lowers_the_rate_is_refused_with_the_rate_it_leads_to() -> None:
    rule = MaskRule(max_predictions=20)
    with pytest.raises(ConfigError, match=r"from 15\.00% to 3\.92%"):
        check_cap(rule, 510, allow_lower_rate=False)
    check_cap(rule, 510, allow_lower_rate=True)
    check_cap(MaskRule(max_predictions=80), 510, allow_lower_rate=False)


def test_the_expected_number_under_a_cap_is_what_is_found() -> None:
    rule = MaskRule(max_predictions=17)
    found = (masked(np.full((4000, 100), 50), rule).labels != IGNORE).sum(axis=1)
    assert found.mean() == pytest.approx(rule.expected(100), abs=0.15)
    assert found.max() == 17


def test_words_that_nothing_tells_are_refused() -> None:
    ids = np.full((1, 8), 50)
    vocabulary = MaskVocabulary(mask_id=4, special_ids=(4,), ordinary_ids=np.arange(5, 99))
    with pytest.raises(DataError, match="--word-starts"):
        find_units(ids, MaskRule(unit="word"), vocabulary)


@pytest.mark.parametrize(
    "options",
    [
        {"unit": "sentence"},
        {"max_span": 0},
        {"max_predictions": 0},
        {"mask_prob": ()},
        {"mask_prob": (0.1, 1.2)},
        {"never_draw": ((9, 3),)},
        {"span_prob": 1.5},
    ],
)
def test_impossible_rules_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        MaskRule(**options)


@given(st.sampled_from(list(SCHEMES.values())))
def test_a_rule_survives_json(rule: MaskRule) -> None:
    import json

    assert MaskRule.from_json(json.loads(json.dumps(rule.to_json()))) == rule
