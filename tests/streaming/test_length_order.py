"""Rows of several lengths, one length to a global batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clozeline
from clozeline import Masking, StreamOptions, TokenStream
from clozeline.streaming.lengths import LengthOrder

IDENTITY = StreamOptions(identity=True)


@settings(max_examples=100, deadline=None)
@given(
    files=st.lists(st.tuples(st.sampled_from([16, 32, 64]), st.integers(0, 40)), min_size=1, max_size=8),
    batch=st.integers(1, 9),
    epoch=st.integers(0, 3),
)
def test_each_batch_has_rows_of_one_length_and_no_row_comes_twice(
    files: list[tuple[int, int]], batch: int, epoch: int
) -> None:
    lengths, counts = zip(*files, strict=True)
    order = LengthOrder(lengths=lengths, counts=counts, global_batch=batch, seed=4)
    whole = {length: sum(n for k, n in files if k == length) // batch for length in set(lengths)}
    assert order.count == sum(whole.values()) * batch
    if not order.count:
        return
    rows = order.rows(epoch, np.arange(order.count))
    assert len(set(rows.tolist())) == len(rows)
    assert rows.min() >= 0
    assert rows.max() < sum(counts)
    length_of = np.repeat(lengths, counts)[rows].reshape(-1, batch)
    assert (length_of == length_of[:, :1]).all()
    found = {length: int((length_of[:, 0] == length).sum()) for length in set(lengths)}
    assert found == whole
    # A position alone is where it is among all.
    some = np.arange(order.count)[::3]
    assert order.rows(epoch, some).tolist() == rows[some].tolist()


@pytest.fixture(scope="module")
def binned(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    """A few hundred rows of 16, 32 and 64."""
    place = tmp_path_factory.mktemp("binned")
    (place / "corpus.txt").write_text("".join(f"document {i} {'word ' * (i % 40)}\n" for i in range(300)))
    options = clozeline.PackOptions(max_length=64, packing="documents", bins=(16, 32, 64))
    run = clozeline.RunOptions(executor="serial")
    clozeline.prepare(place / "corpus.txt", place, tokenizer, None, options, None, run, static=False)
    return place / "packed"


def test_all_ranks_have_rows_of_the_same_length_at_each_step(binned: Path) -> None:
    def stream(rank: int, world_size: int) -> TokenStream:
        return TokenStream(
            binned,
            batch_size=8 // world_size,
            transform=Masking(seed=1),
            shuffle="lengths",
            seed=2,
            rank=rank,
            world_size=world_size,
            options=IDENTITY,
        )

    alone = list(stream(0, 1))
    assert len(alone) == len(stream(0, 1)) > 10
    shapes = [batch["input_ids"].shape[1] for batch in alone]
    assert set(shapes) == {16, 32, 64}
    assert shapes != sorted(shapes)
    for whole, first, second in zip(alone, stream(0, 2), stream(1, 2), strict=True):
        assert first["input_ids"].shape == second["input_ids"].shape
        assert whole["row"].tolist() == first["row"].tolist() + second["row"].tolist()
        assert whole["labels"].tolist() == first["labels"].tolist() + second["labels"].tolist()
        # Nothing is padded beyond the length of the bin: no row would fit in the bin below.
        longest = whole["input_ids"].shape[1]
        used = whole["attention_mask"].sum(1)
        assert longest == 16 or int(used.min()) > longest // 2


def test_a_stream_of_one_length_a_batch_goes_on_where_it_stopped(binned: Path) -> None:
    def stream() -> TokenStream:
        return TokenStream(binned, batch_size=4, shuffle="lengths", options=IDENTITY)

    whole = [b["global_row"].tolist() for b in stream()]
    first = stream()
    iterator = iter(first)
    seen = [next(iterator)["global_row"].tolist() for _ in range(7)]
    second = stream()
    second.load_state_dict(first.state_dict())
    assert seen + [b["global_row"].tolist() for b in second] == whole


def test_a_tail_or_single_rows_are_refused(binned: Path) -> None:
    with pytest.raises(clozeline.ConfigError, match="give a batch_size"):
        TokenStream(binned, shuffle="lengths")
    with pytest.raises(clozeline.ConfigError, match="tail='drop'"):
        TokenStream(binned, batch_size=4, shuffle="lengths", tail="even", options=IDENTITY)
