"""TokenStream.mix: fixed proportions, every row of each stream in its own order, epoch after epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_data import number_of, write_packed

from clozeline import Masking, TokenLoader, TokenStream
from clozeline.errors import ConfigError, DataError
from clozeline.mask_function import MaskRule
from clozeline.streaming.stream import StreamOptions

IDENTITY = StreamOptions(identity=True)
MASKING = Masking(seed=11, rule=MaskRule(mask_prob=0.4))


def flat(stream: Any, passes: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(source, row number) of everything a stream gives."""
    batches = [b for _ in range(passes) for b in stream]
    return tuple(torch.cat([b[name] for b in batches]).numpy() for name in ("source", "global_row"))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return write_packed(tmp_path / "other", [13, 17])


@settings(deadline=None, max_examples=40)
@given(
    weights=st.lists(st.floats(0.01, 10), min_size=1, max_size=4), epoch=st.integers(0, 20), rows=st.integers(1, 400)
)
def test_proportions_hold_at_every_row(weights: list[float], epoch: int, rows: int, tmp_path_factory: Any) -> None:
    path = write_packed(tmp_path_factory.mktemp("mix"), [9])
    streams = [TokenStream(path) for _ in weights]
    mixed = TokenStream.mix(streams, weights, rows=rows, batch_size=1, rank=0, world_size=1)
    sources, _ = mixed._source.draws(epoch, np.arange(rows))
    everything, all_draws = mixed._source.draws(0, np.arange((epoch + 1) * rows))
    assert np.array_equal(everything[epoch * rows :], sources), "epochs go on where the last one ends"
    for i, weight in enumerate(weights):
        mine = all_draws[everything == i]
        assert np.array_equal(mine, np.arange(len(mine))), "no row of a stream is skipped"
        given_out = np.cumsum(everything == i)
        expected = weight / sum(weights) * np.arange(1, len(everything) + 1)
        assert np.abs(given_out - expected).max() <= i + 1.01


def test_each_stream_keeps_its_own_order_and_masks(packed: Path, other: Path) -> None:
    a = TokenStream(packed, seed=1, transform=MASKING)
    b = TokenStream(other, seed=2, shuffle=None, transform=MASKING)
    mixed = TokenStream.mix([a, b], [3, 1], batch_size=8, tail="even", options=IDENTITY)
    batches = [batch for _ in range(2) for batch in mixed]
    for i, path, options in ((0, packed, {"seed": 1}), (1, other, {"shuffle": None})):
        alone = TokenStream(path, transform=MASKING, **options)
        expected = [row for _ in range(3) for row in alone]
        mine = [
            (ids, labels)
            for batch in batches
            for source, ids, labels in zip(batch["source"], batch["input_ids"], batch["labels"], strict=True)
            if source == i
        ]
        assert len(mine) > len(alone), "the test is to reach a second epoch"
        for (ids, labels), row in zip(mine, expected, strict=False):
            assert torch.equal(ids, row["input_ids"])
            assert torch.equal(labels, row["labels"])


def test_a_mixture_resumes_and_shares_out_like_any_stream(packed: Path, other: Path) -> None:
    def mixed(**options: Any) -> TokenStream:
        streams = [TokenStream(packed, transform=MASKING), TokenStream(other, transform=MASKING)]
        return TokenStream.mix(streams, [2, 1], tail="even", options=IDENTITY, **options)

    uninterrupted = mixed(batch_size=12)
    whole = [b["input_ids"] for _ in range(2) for b in uninterrupted]
    stream = mixed(batch_size=12)
    list(stream)
    iterator = iter(stream)
    for _ in range(4):
        next(iterator)
    state = stream.state_dict()
    assert all(isinstance(v, (int, str, float)) or v is None for v in state.values())
    parts = []
    for rank in range(3):
        part = mixed(batch_size=4, rank=rank, world_size=3)
        part.load_state_dict(state)
        parts.append([b["input_ids"][b["global_row"] >= 0] for b in TokenLoader(part, num_workers=2 * (rank == 1))])
    found = [torch.cat(batch) for batch in zip(*parts, strict=True)]
    expected = whole[len(mixed(batch_size=12)) + 4 :]
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert torch.equal(one, two)
    with pytest.raises(ConfigError, match=r"weight of stream 0 is 0\.66"):
        TokenStream.mix([TokenStream(packed), TokenStream(other)], [1, 2], batch_size=12, tail="even").load_state_dict(
            {**state, "transform of stream 0": "none", "transform of stream 1": "none"}
        )


def test_what_does_not_fit_is_not_mixed(packed: Path, other: Path, masked: Path) -> None:
    a, b = TokenStream(packed), TokenStream(other)
    for weights in ([1], [1, 0], [1, -1], [1, float("nan")]):
        with pytest.raises(ConfigError, match="weights"):
            TokenStream.mix([a, b], weights)
    with pytest.raises(ConfigError, match="mixed again"):
        TokenStream.mix([TokenStream.mix([a, b], [1, 1]), b], [1, 1])
    with pytest.raises(DataError, match="different columns"):
        list(TokenStream.mix([a, TokenStream(masked)], [1, 1], batch_size=8))


def test_numbers_are_those_of_the_rows(packed: Path, other: Path) -> None:
    mixed = TokenStream.mix([TokenStream(packed), TokenStream(other)], [1, 1], batch_size=5, options=IDENTITY)
    for batch in mixed:
        assert np.array_equal(number_of(batch["input_ids"].numpy()), batch["global_row"].numpy())
    sources, _ = flat(mixed)
    assert (sources == 0).sum() == (sources == 1).sum() == 65
