"""TokenLoader: the stream's own batches, read ahead anywhere; its state counts what was given out."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stream_data import write_packed

from clozeline import Masking, TokenLoader, TokenStream
from clozeline.errors import ConfigError, DataError
from clozeline.mask_function import MaskRule
from clozeline.streaming import parcels
from clozeline.streaming.stream import StreamOptions

MASKING = Masking(seed=11, rule=MaskRule(mask_prob=0.4))

few_cores = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[k], other[k]) and one[k].dtype == other[k].dtype for k in one
    )


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert same(one, other)


@pytest.fixture
def parcel_bytes() -> Iterator[None]:
    before = parcels.PARCEL_BYTES
    yield
    parcels.PARCEL_BYTES = before


@few_cores
@pytest.mark.usefixtures("parcel_bytes")
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(), tail=st.sampled_from(["drop", "pad", "even"]), shuffle=st.sampled_from(["global", "blocks", None])
)
def test_workers_and_stops_change_nothing(
    data: st.DataObject, tail: str, shuffle: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = data.draw(st.integers(1, 300), "rows")
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=6), "cuts"))
    path = write_packed(tmp_path_factory.mktemp("data"), np.diff([0, *cuts, rows]).tolist())
    world, batch = data.draw(st.integers(1, 5), "world"), data.draw(st.integers(1, 32), "batch")
    options = {
        "batch_size": batch,
        "transform": MASKING,
        "tail": tail,
        "shuffle": shuffle,
        "rank": data.draw(st.integers(0, world - 1), "rank"),
        "world_size": world,
        "options": StreamOptions(identity=True, block_rows=5, window_blocks=3),
    }
    parcels.PARCEL_BYTES = data.draw(st.sampled_from([1, 1000, 2**18]), "bytes of a parcel")
    alone = TokenStream(path, **options)
    expected, following = list(alone), list(alone)
    loader = TokenLoader(TokenStream(path, **options), num_workers=data.draw(st.integers(0, 3), "workers"))
    stop = data.draw(st.integers(0, len(expected)), "stop")
    iterator = iter(loader)
    assert_same([next(iterator) for _ in range(stop)], expected[:stop])
    state = json.loads(json.dumps(loader.state_dict()))
    del iterator, loader
    rest = expected[stop:] if stop < len(expected) else following  # where a pass has ended the next one begins
    again = TokenLoader(TokenStream(path, **options), num_workers=data.draw(st.integers(0, 3), "other workers"))
    again.load_state_dict(state)
    assert_same(list(again), rest)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_reach_workers(packed: Path, method: str, persistent: bool) -> None:
    stream = TokenStream(packed, batch_size=7, tail="even", transform=MASKING)
    expected = [list(stream) for _ in range(3)]
    stream.set_epoch(9)
    expected.append(list(stream))
    loader = TokenLoader(
        TokenStream(packed, batch_size=7, tail="even", transform=MASKING),
        num_workers=2,
        persistent_workers=persistent,
        multiprocessing_context=method,
    )
    for epoch in (0, 1, 2, 9):
        assert loader.epoch == min(epoch, 3)
        loader.set_epoch(epoch)
        found = []
        for batch in loader:
            found.append(batch)
            assert loader.epoch == epoch
        assert_same(found, expected.pop(0))
    assert loader.state_dict()["epoch"] == 10


def test_a_worker_that_starts_late_does_not_begin_the_next_epoch(packed: Path) -> None:
    """By then the main process has given out the last batch, and with it the epoch has ended."""
    stream = TokenStream(packed, batch_size=3, transform=MASKING)
    iterator = iter(stream)
    for _ in range(31):
        next(iterator)
    loader = TokenLoader(TokenStream(packed, batch_size=3, transform=MASKING), num_workers=2)
    loader.load_state_dict(stream.state_dict())
    expected = list(iterator)
    given_out = multiprocessing.get_context("fork").Event()
    loader._workers.worker_init_fn = lambda worker: given_out.wait(60) if worker == 1 else None
    found = []
    for batch in loader:
        found.append(batch)
        if len(found) == len(expected):
            given_out.set()
    assert_same(found, expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_that_is_broken_off_begins_again(packed: Path, workers: int) -> None:
    stream = TokenStream(packed, batch_size=5)
    expected = list(stream)
    loader = TokenLoader(TokenStream(packed, batch_size=5), num_workers=workers)
    for index, _ in enumerate(loader):
        if index == 6:
            break
    assert loader.state_dict()["rows"] == 35
    assert_same(list(loader), expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_two_passes_at_once_are_refused(packed: Path, workers: int) -> None:
    """They share workers: the first would be given rows of the second."""
    loader = TokenLoader(TokenStream(packed, batch_size=5), num_workers=workers)
    first = iter(loader)
    next(first)
    second = iter(loader)
    expected = list(TokenStream(packed, batch_size=5))
    assert same(next(second), expected[0])
    with pytest.raises(ConfigError, match="another pass"):
        next(first)
    assert_same(list(second), expected[1:])
    third = iter(loader)
    next(third)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(ConfigError, match="a state was loaded"):
        next(third)


def test_the_state_counts_what_was_given_out_not_what_was_read_ahead(packed: Path) -> None:
    loader = TokenLoader(TokenStream(packed, batch_size=1), prefetch=50)
    iterator = iter(loader)
    for given_out in range(1, 30):
        next(iterator)
        assert loader.state_dict()["rows"] == given_out


def test_integers_are_widened_on_the_way_out(packed: Path) -> None:
    for workers in (0, 2):
        for dtype in ("int64", "int32"):
            stream = TokenStream(packed, batch_size=5, transform=MASKING, options=StreamOptions(dtype=dtype))
            batch = next(iter(TokenLoader(stream, num_workers=workers)))
            assert {str(v.dtype) for v in batch.values()} == {f"torch.{dtype}"}
            assert list(batch) == ["input_ids", "attention_mask", "labels"]


def test_batches_without_padding_can_come_without_an_attention_mask(packed: Path) -> None:
    options = StreamOptions(full_attention_mask=False)
    for workers in (0, 2):
        stream = TokenStream(packed, batch_size=5, options=options)
        assert all(set(batch) == {"input_ids"} for batch in TokenLoader(stream, num_workers=workers))


def test_kept_batches_of_workers_keep_their_rows(packed: Path) -> None:
    kept = list(TokenLoader(TokenStream(packed, batch_size=3), num_workers=2, prefetch=1))
    assert_same(kept, list(TokenStream(packed, batch_size=3)))


@pytest.mark.parametrize("workers", [0, 2])
def test_damage_is_told_without_a_workers_traceback(packed: Path, workers: int) -> None:
    (packed / "packed-00002-of-00003.arrow").unlink()
    with pytest.raises(DataError) as caught:
        list(TokenLoader(TokenStream(packed, batch_size=5), num_workers=workers))
    assert "packed-00002-of-00003.arrow" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_fault_of_a_transform_reaches_the_trainer(packed: Path) -> None:
    def transform(batch: dict[str, Any], *, rows: Any, **_: Any) -> dict[str, Any]:
        if 22 in rows:
            raise ZeroDivisionError("row 22")
        return batch

    with pytest.raises(ZeroDivisionError, match="row 22"):
        list(TokenLoader(TokenStream(packed, batch_size=5, transform=transform)))


def test_a_worker_that_is_killed_is_an_error_not_a_short_epoch(packed: Path) -> None:
    def transform(batch: dict[str, Any], *, rows: Any, **_: Any) -> dict[str, Any]:
        if 22 in rows:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    with pytest.raises(RuntimeError, match=r"worker .*(killed|exited)"):
        list(TokenLoader(TokenStream(packed, batch_size=5, transform=transform), num_workers=2))


def test_no_thread_is_left_behind(packed: Path) -> None:
    def reading() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name == "clozeline-read-ahead"]

    loader = TokenLoader(TokenStream(packed, batch_size=1), prefetch=2)
    iterator = iter(loader)
    next(iterator)
    assert len(reading()) == 1
    iterator.close()
    assert not reading()
    list(loader)
    assert not reading()


def test_what_a_loader_cannot_do_is_refused(packed: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        TokenLoader(TokenStream(packed))
    with pytest.raises(ConfigError, match="num_workers is -1"):
        TokenLoader(TokenStream(packed, batch_size=1), num_workers=-1)
