"""Row order: a permutation of the rows, the same wherever and in whatever pieces it is computed."""

from __future__ import annotations

from math import isqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeline.errors import ConfigError
from clozeline.streaming.order import RowOrder


def by_the_book(seed: int, epoch: int, count: int, position: int) -> int:
    """Row order version 1, shuffle "global", as `docs/stream.md` defines it, with Python's integers."""
    keys = [
        int(k) for k in np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=[0, 0, 0, 3]).random_raw(6)
    ]
    a = isqrt(count - 1) + 1
    b = -(-count // a)

    def f(value: int, key: int, modulus: int) -> int:
        h = (value ^ key) * 0xBF58476D1CE4E5B9 % 2**64
        h = (h ^ h >> 32) * 0x94D049BB133111EB % 2**64
        return (h >> 32) * modulus >> 32

    x = position
    while True:
        left, right = divmod(x, b)
        for i in range(0, 6, 2):
            left = (left + f(right, keys[i], a)) % a
            right = (right + f(left, keys[i + 1], b)) % b
        x = left * b + right
        if x < count:
            return x


VECTORS = [
    [8, 1, 2, 7, 4, 0, 6, 5, 9, 3],
    [965, 924, 940, 439, 727, 431, 366, 732, 351, 320],
    [941, 216, 194, 441, 837, 710, 263, 813, 522, 537],
    [4868168, 99678023, 67174276, 77164797, 75943916, 28774266, 56178003, 82277027, 73354306, 48867892],
    [153, 122, 390, 634, 410, 620, 568, 604, 405, 385],
]

shuffles = st.sampled_from(["global", "blocks", None])


@settings(deadline=None, max_examples=150)
@given(
    count=st.integers(1, 3000),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 1000),
    shuffle=shuffles,
    block=st.integers(1, 50),
    window=st.integers(1, 9),
)
def test_every_row_stands_at_one_position(
    count: int, seed: int, epoch: int, shuffle: str | None, block: int, window: int
) -> None:
    order = RowOrder(count=count, seed=seed, shuffle=shuffle, block_rows=block, window_blocks=window)
    rows = order.rows(epoch, np.arange(count))
    assert np.array_equal(np.sort(rows), np.arange(count))
    some = np.random.default_rng(0).integers(0, count, 20)
    assert np.array_equal(order.rows(epoch, some), rows[some]), "positions asked for alone give other rows"


@settings(deadline=None, max_examples=60)
@given(count=st.integers(1, 10**12), seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 2**32), data=st.data())
def test_the_global_order_is_the_documented_one(count: int, seed: int, epoch: int, data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=5))
    rows = RowOrder(count=count, seed=seed).rows(epoch, np.array(positions))
    assert rows.tolist() == [by_the_book(seed, epoch, count, p) for p in positions]


def test_vectors_of_version_1() -> None:
    def first(count: int, seed: int, epoch: int, shuffle: str, **options: int) -> list[int]:
        order = RowOrder(count=count, seed=seed, shuffle=shuffle, **options)
        return order.rows(epoch, np.arange(min(count, 10))).tolist()

    assert first(10, 0, 0, "global") == VECTORS[0]
    assert first(1_000, 7, 0, "global") == VECTORS[1]
    assert first(1_000, 7, 1, "global") == VECTORS[2]
    assert first(100_000_000, 7, 1, "global") == VECTORS[3]
    assert first(1_000, 7, 1, "blocks", block_rows=64, window_blocks=4) == VECTORS[4]


def test_small_permutations_are_all_about_equally_frequent() -> None:
    """All 24 orders of 4 rows; chi-square with 23 degrees of freedom stays below its 99.99 % quantile, 58.6."""
    trials = 4800
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(trials):
        rows = tuple(RowOrder(count=4, seed=seed).rows(3, np.arange(4)).tolist())
        counts[rows] = counts.get(rows, 0) + 1
    expected = trials / 24
    assert len(counts) == 24
    assert sum((c - expected) ** 2 / expected for c in counts.values()) < 58.6


def test_a_shuffle_has_no_memory_of_position() -> None:
    """A grid of position against row, and of row against the next row: chi-square with 99 * 99 degrees of freedom."""
    n = 200_000
    rows = RowOrder(count=n, seed=5).rows(2, np.arange(n))
    for first, second in ((np.arange(n), rows), (rows[:-1], rows[1:]), (rows[:-64], rows[64:])):
        grid = np.histogram2d(first, second, bins=100, range=[[0, n], [0, n]])[0]
        expected = len(first) / 10_000
        chi = ((grid - expected) ** 2 / expected).sum()
        assert abs(chi - 99 * 99) < 5 * np.sqrt(2 * 99 * 99)


def test_epochs_and_seeds_give_other_orders() -> None:
    n = 10_000
    orders = [RowOrder(count=n, seed=s).rows(e, np.arange(n)) for s in (0, 1) for e in (0, 1, 2)]
    for i, one in enumerate(orders):
        for other in orders[:i]:
            assert (one == other).sum() < 12  # 1 is expected


def test_blocks_read_few_places_at_a_time() -> None:
    """Any 1,024 positions of one window touch no more than the window's 16 blocks (32 by the rotation), each read whole."""
    order = RowOrder(count=100_000, seed=1, shuffle="blocks", block_rows=64, window_blocks=16)
    for first in range(0, 50 * 1024, 1024):
        rows = np.sort(order.rows(0, np.arange(first, first + 1024)))
        assert (np.diff(rows) > 1).sum() < 16


@pytest.mark.parametrize(
    ("option", "value"),
    [("shuffle", "rows"), ("seed", -1), ("seed", 2**64), ("block_rows", 0), ("window_blocks", 0)],
)
def test_a_bad_option_is_refused(option: str, value: object) -> None:
    with pytest.raises(ConfigError, match=option.split("_")[0]):
        RowOrder(**{"count": 10, "seed": 0, "shuffle": "blocks", option: value})


def test_the_page_has_the_vectors() -> None:
    page = (Path(__file__).parents[2] / "docs" / "stream.md").read_text()
    assert all(" ".join(map(str, rows)) in page for rows in VECTORS)
