"""A token shard gives any rows in any order, of every column, wherever its record batches begin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_data import LENGTH, row_ids, write_packed

from clozeline.store.dataset import Data
from clozeline.store.shards import TokenShard


def shard_of(folder: pytest.TempPathFactory, rows: int, batch_rows: int) -> TokenShard:
    shard = Data(write_packed(folder.mktemp("data"), [rows], batch_rows)).shard(0)
    assert isinstance(shard, TokenShard)
    return shard


@settings(deadline=None, max_examples=60)
@given(data=st.data(), rows=st.integers(1, 40), batch_rows=st.integers(1, 45))
def test_rows_are_those_that_were_written(
    data: st.DataObject, rows: int, batch_rows: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shard = shard_of(tmp_path_factory, rows, batch_rows)
    expected = row_ids(np.arange(rows))
    wanted = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=50)), np.int64)
    first = data.draw(st.integers(0, rows - 1))
    run = np.arange(first, data.draw(st.integers(first, rows)))
    for numbers in (wanted, run):
        np.testing.assert_array_equal(shard.take("input_ids", numbers), expected[numbers])
        assert shard.take("num_tokens", numbers).tolist() == [LENGTH] * len(numbers)
        places = np.random.default_rng(0).permutation(60)[: len(numbers)]
        out = {"input_ids": np.full((60, LENGTH), -1, np.int64), "num_tokens": np.full(60, -1, np.int64)}
        shard.take_into(out, numbers, places)
        np.testing.assert_array_equal(out["input_ids"][places], expected[numbers])
        assert (np.delete(out["input_ids"], places, 0) == -1).all()
        assert (out["num_tokens"] == LENGTH).sum() == len(numbers)
    batches = [b["input_ids"] for b in shard.batches("input_ids")]
    np.testing.assert_array_equal(np.concatenate(batches), expected)
    assert [len(b) for b in batches[:-1]] == [min(batch_rows, rows)] * (len(batches) - 1)


@pytest.mark.parametrize("rows", [[-1], [3, 10], [9, 10, 11], [2**40]])
def test_a_row_that_is_not_there_is_an_error(rows: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    """What follows the last row in the file is no row."""
    shard = shard_of(tmp_path_factory, 10, 4)
    with pytest.raises(IndexError, match="it has 10"):
        shard.take("input_ids", np.array(rows))
