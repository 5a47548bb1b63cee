"""Random words: numpy's Philox, addressed by what they belong to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeline.seeds import block_words, row_words

VECTOR_1 = (
    "df4034b829e9fba4 4b9d10cdf8e64087 6b8b857e506aac98 67c7c945b1ba6e52 "
    "15352da77ecee8e6 b256888327f72bcc 4bde1757d950a392 9edd26e855c94201"
)
VECTOR_2 = "9cb8dff2e3e4c8c9 d2ca202013ec1d50 d304ef4de535cd89 69a2b69436b29c66 12c428757e54e226 5604a102766b34f3"


@pytest.mark.parametrize(
    ("seed", "copy", "shard", "row", "words"),
    [
        (7, 0, 0, 0, VECTOR_1),
        (7, 2, 5, 3, VECTOR_2),
    ],
)
def test_row_words_are_the_published_vectors(seed: int, copy: int, shard: int, row: int, words: str) -> None:
    wanted = [int(w, 16) for w in words.split()]
    drawn = row_words(seed, copy, np.array([shard]), np.array([row]), len(wanted))
    assert drawn[0].tolist() == wanted


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**64 - 1),
    copy=st.integers(0, 1000),
    places=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**33)), min_size=1, max_size=12),
    length=st.integers(1, 40),
)
def test_words_of_a_row_do_not_depend_on_the_rows_drawn_with_it(
    seed: int, copy: int, places: list[tuple[int, int]], length: int
) -> None:
    places += [(h, r + 1) for h, r in places]  # some runs of consecutive rows
    shards, rows = (np.array(x) for x in zip(*sorted(places), strict=True))
    together = row_words(seed, copy, shards, rows, length)
    blocks = -(-length // 4)
    for i in range(len(rows)):
        key, counter = [seed, copy], [int(rows[i]) * blocks, int(shards[i]), 0, 0]
        alone = np.random.Philox(key=np.array(key, np.uint64), counter=np.array(counter, np.uint64))
        assert together[i].tolist() == alone.random_raw(4 * blocks)[:length].tolist()


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**64 - 1),
    copy=st.integers(0, 2**64 - 1),
    counters=st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 4), min_size=1, max_size=5),
)
def test_block_words_are_those_of_numpy(seed: int, copy: int, counters: list[tuple[int, int, int, int]]) -> None:
    array = np.array(counters, np.uint64)
    drawn = block_words(seed, copy, array)
    for i, counter in enumerate(array):
        generator = np.random.Philox(key=np.array([seed, copy], np.uint64), counter=counter)
        assert drawn[i].tolist() == generator.random_raw(4).tolist()


def test_domains_do_not_share_words() -> None:
    drawn = [row_words(1, 0, np.zeros(50, int), np.arange(50), 16, domain=d) for d in range(5)]
    assert len(np.unique(np.concatenate(drawn))) == 5 * 50 * 16
