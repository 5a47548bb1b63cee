"""TokenStream: every row once, whoever reads, however often it is stopped."""

from __future__ import annotations

import copy
import json
import pickle
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_data import LENGTH, number_of, write_packed
from torch.utils.data import DataLoader

import clozeline
from clozeline import Masking, TokenLoader, TokenStream
from clozeline.errors import ConfigError, DataError
from clozeline.mask_function import MaskRule
from clozeline.store.dataset import Data
from clozeline.streaming.stream import StreamOptions

MASKING = Masking(seed=11, rule=MaskRule(mask_prob=0.4))
IDENTITY = StreamOptions(identity=True)


def original(batch: dict[str, torch.Tensor]) -> np.ndarray:
    """The row numbers that a batch spells, its masks undone."""
    return number_of(torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"]).numpy())


def real(batch: dict[str, torch.Tensor]) -> list[tuple[int, bytes, bytes]]:
    """(row number, input ids, labels) of the rows that are not padding."""
    rows = batch["global_row"].numpy()
    ids, labels = batch["input_ids"].numpy(), batch["labels"].numpy()
    keep = np.flatnonzero(rows >= 0)
    assert (labels[rows < 0] == -100).all()
    assert np.array_equal(number_of(np.where(labels == -100, ids, labels))[keep], rows[keep])
    return [(int(rows[i]), ids[i].tobytes(), labels[i].tobytes()) for i in keep]


def global_batches(
    path: Path, world: int, batch: int, state: dict[str, Any] | None = None, **options: Any
) -> list[Any]:
    """What all ranks see, batch by batch."""
    options = {"transform": MASKING, "options": IDENTITY, "seed": 3, **options}
    ranks = []
    for rank in range(world):
        stream = TokenStream(path, batch_size=batch, rank=rank, world_size=world, **options)
        if state is not None:
            stream.load_state_dict(state)
        else:
            assert len(stream) == stream.plan.batches
        ranks.append([real(b) for b in stream])
    assert len({len(r) for r in ranks}) == 1, "ranks have different numbers of batches"
    return [[row for part in parts for row in part] for parts in zip(*ranks, strict=True)]


@settings(deadline=None, max_examples=40)
@given(
    data=st.data(), tail=st.sampled_from(["drop", "pad", "even"]), shuffle=st.sampled_from(["global", "blocks", None])
)
def test_ranks_together_see_every_row_once_and_go_on_anywhere(
    data: st.DataObject, tail: str, shuffle: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows, shards = data.draw(st.integers(1, 300), "rows"), data.draw(st.integers(1, 7), "shards")
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), min_size=shards - 1, max_size=shards - 1), "cuts"))
    path = write_packed(tmp_path_factory.mktemp("data"), np.diff([0, *cuts, rows]).tolist())
    world, batch = data.draw(st.integers(1, 5), "world"), data.draw(st.integers(1, 32), "batch")
    small = StreamOptions(identity=True, block_rows=5, window_blocks=3)
    options = {"tail": tail, "shuffle": shuffle, "options": small}

    whole = global_batches(path, world, batch, **options)
    seen = [row for rows_ in whole for row, _, _ in rows_]
    expected = rows // (world * batch) * world * batch if tail == "drop" else rows
    assert len(seen) == len(set(seen)) == expected
    assert all(len(b) == world * batch for b in whole[:-1])

    # The same global batches for any number of ranks that makes up the same global batch, from any point.
    total = world * batch
    other = data.draw(st.sampled_from([w for w in range(1, 6) if total % w == 0]), "other world")
    assert global_batches(path, other, total // other, **options) == whole
    stop = data.draw(st.integers(0, len(whole)), "stop")
    stream = TokenStream(path, batch_size=batch, rank=0, world_size=world, seed=3, transform=MASKING, **options)
    iterator = iter(stream)
    for _ in range(stop):
        next(iterator)
    state = json.loads(json.dumps(stream.state_dict()))
    rest = whole[stop:]
    if 0 < stop == len(whole):  # where a pass has ended the next one begins
        rest = global_batches(path, world, batch, {**state, "epoch": 1, "rows": 0}, **options)
    assert global_batches(path, other, total // other, state, **options) == rest


def test_batches_are_int64_tensors_with_the_columns_models_take(packed: Path, masked: Path) -> None:
    batch = next(iter(TokenStream(packed, batch_size=8)))
    assert {k: (v.dtype, tuple(v.shape)) for k, v in batch.items()} == {
        "input_ids": (torch.int64, (8, LENGTH)),
        "attention_mask": (torch.int64, (8, LENGTH)),
    }
    batch = next(iter(TokenStream(masked, batch_size=8, options=StreamOptions(dtype="int32", columns=("num_tokens",)))))
    assert {k: v.dtype for k, v in batch.items()} == dict.fromkeys(
        ("input_ids", "attention_mask", "labels", "num_tokens"), torch.int32
    )


def test_static_copy_k_and_epoch_k_on_the_fly_are_the_same_stream(packed: Path, masked: Path) -> None:
    for epoch in range(3):
        static = TokenStream(masked, batch_size=16, copy="epoch", epoch=epoch, tail="even")
        fly = TokenStream(packed, batch_size=16, transform=MASKING, epoch=epoch, tail="even")
        for one, other in zip(static, fly, strict=True):
            assert one.keys() == other.keys()
            same = torch.equal(one["input_ids"], other["input_ids"]) and torch.equal(one["labels"], other["labels"])
            assert same == (epoch < 2), "copy k mod K: the third epoch reads copy 0 again, masks on the fly are new"


def test_copies_are_one_data_set_unless_told_otherwise(masked: Path) -> None:
    options = {"batch_size": 10, "options": IDENTITY, "shuffle": None}
    everything = [b["global_row"] for b in TokenStream(masked, **options)]
    assert torch.cat(everything).tolist() == list(range(200))
    one = TokenStream(masked, copy=1, **options)
    assert [original(b).tolist() for b in one] == [list(range(i, i + 10)) for i in range(0, 100, 10)]
    with pytest.raises(ConfigError, match=r"copy is 2: .* has 2"):
        TokenStream(masked, copy=2)


def test_identity_says_where_each_row_stands(packed: Path) -> None:
    for batch in TokenStream(packed, batch_size=16, options=IDENTITY, tail="pad", epoch=1):
        padding = batch["global_row"] < 0
        start = torch.tensor([0, 40, 63])[batch["shard"].clamp(min=0)]
        assert torch.equal((start + batch["row"])[~padding], batch["global_row"][~padding])
        assert torch.equal(batch["shard"] < 0, padding)
        assert torch.equal(batch["row"] < 0, padding)


def test_single_rows_are_those_of_the_batches(packed: Path) -> None:
    rows = list(TokenStream(packed, seed=2, rank=0, world_size=1))
    batches = list(TokenStream(packed, batch_size=10, seed=2))
    assert len(rows) == 100
    assert rows[0]["input_ids"].shape == (LENGTH,)
    assert torch.equal(torch.stack([r["input_ids"] for r in rows]), torch.cat([b["input_ids"] for b in batches]))


def test_single_rows_resume_in_any_world(packed: Path) -> None:
    rows = [int(r["global_row"]) for r in TokenStream(packed, options=IDENTITY)]
    stream = TokenStream(packed, options=IDENTITY, rank=1, world_size=3)
    iterator = iter(stream)
    for _ in range(7):
        next(iterator)
    state = stream.state_dict()
    assert state["rows"] == 21
    rest = []
    for rank in range(2):
        other = TokenStream(packed, options=IDENTITY, rank=rank, world_size=2)
        other.load_state_dict(state)
        rest.append([int(r["global_row"]) for r in other])
    assert [r for pair in zip(*rest, strict=True) for r in pair] == rows[21:99]


# Epochs


def numbers(stream: Any) -> list[int]:
    return [n for b in stream for n in number_of(b["input_ids"].numpy()).tolist()]


def test_epochs_advance_when_a_pass_has_ended(packed: Path) -> None:
    stream = TokenStream(packed, batch_size=10)
    assert stream.epoch == 0
    next(iter(stream))  # a look at the first batch is no epoch
    first, second = numbers(stream), numbers(stream)
    assert stream.epoch == 2
    assert first != second
    assert numbers(TokenStream(packed, batch_size=10, epoch=1)) == second
    stream.set_epoch(0)
    assert numbers(stream) == first


def test_a_pass_has_ended_when_its_last_batch_is_given_out(packed: Path) -> None:
    """Lightning takes `len` batches and never asks for the end: it saw epoch 0 for ever."""
    stream = TokenStream(packed, batch_size=10)
    expected = [numbers(stream) for _ in range(3)]
    stream = TokenStream(packed, batch_size=10)
    for epoch in range(3):
        found = []
        iterator = iter(stream)
        for _ in range(len(stream)):
            assert stream.epoch == epoch
            found += numbers([next(iterator)])
        assert found == expected[epoch]
        assert stream.state_dict()["epoch"] == epoch + 1
        assert stream.state_dict()["rows"] == 0


def test_a_pinned_epoch_stays(packed: Path) -> None:
    stream = TokenStream(packed, batch_size=10, epoch=4)
    first = numbers(stream)
    stream.set_epoch(9)
    assert numbers(stream) == first
    assert stream.epoch == 4


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_change_nothing_and_learn_of_epochs(packed: Path, method: str, persistent: bool) -> None:
    alone = TokenStream(packed, batch_size=7, tail="even")
    expected = [numbers(alone) for _ in range(2)]
    alone.set_epoch(7)
    expected.append(numbers(alone))
    stream = TokenStream(packed, batch_size=7, tail="even")
    loader = DataLoader(
        stream, batch_size=None, num_workers=2, persistent_workers=persistent, multiprocessing_context=method
    )
    found = [numbers(loader), numbers(loader)]
    stream.set_epoch(7)
    found.append(numbers(loader))
    assert found == expected
    with pytest.raises(ConfigError, match="TokenLoader"):
        stream.state_dict()


def test_more_workers_than_batches(packed: Path) -> None:
    stream = TokenStream(packed, batch_size=100, tail="even")
    loader = DataLoader(stream, batch_size=None, num_workers=2, persistent_workers=True)
    alone = TokenStream(packed, batch_size=100, tail="even")
    for _ in range(3):
        assert numbers(loader) == numbers(alone)


def test_a_stream_survives_pickling_and_copying(packed: Path) -> None:
    stream = TokenStream(packed, batch_size=10, transform=MASKING)
    next(iter(stream))
    expected = [original(b).tolist() for b in stream]
    for twin in (pickle.loads(pickle.dumps(stream)), copy.deepcopy(stream)):
        twin.set_epoch(0)
        assert [original(b).tolist() for b in twin] == expected


# Resuming


def test_resume_in_a_later_epoch(packed: Path) -> None:
    stream = TokenStream(packed, batch_size=10)
    everything = [b for _ in range(3) for b in stream]
    stream = TokenStream(packed, batch_size=10)
    list(stream)
    iterator = iter(stream)
    for _ in range(4):
        next(iterator)
    state = stream.state_dict()
    assert (state["epoch"], state["rows"]) == (1, 40)
    again = TokenStream(packed, batch_size=10)
    again.load_state_dict(state)
    again.set_epoch(1)  # what training loops do at the start of each epoch
    rest = [b for _ in range(2) for b in again]
    assert len(rest) == 16
    for one, other in zip(rest, everything[14:], strict=True):
        assert torch.equal(one["input_ids"], other["input_ids"])


def test_a_state_is_small_flat_json_and_the_same_on_every_rank(packed: Path) -> None:
    states = []
    for rank in range(3):
        stream = TokenStream(packed, batch_size=4, rank=rank, world_size=3, transform=MASKING)
        next(iter(stream))
        states.append(stream.state_dict())
    assert states[0] == states[1] == states[2]
    assert all(isinstance(v, (int, str)) or v is None for v in states[0].values())
    assert len(json.dumps(states[0])) < 600


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 5}, "seed is 0 in the state, 5 in this stream"),
        ({"batch_size": 5}, "global batch .* is 10 in the state, 5 in this stream"),
        ({"world_size": 2, "rank": 0}, "global batch .* is 10 in the state, 20 in this stream"),
        ({"tail": "even"}, "tail is 'drop' in the state, 'even' in this stream"),
        ({"shuffle": None}, "shuffle is 'global' in the state, None"),
        ({"transform": Masking(seed=12)}, r'transform .* "seed": 11.* "seed": 12'),
        ({"transform": None}, "'none' in this stream"),
    ],
)
def test_a_state_of_other_work_is_refused(packed: Path, change: dict[str, Any], words: str) -> None:
    state = TokenStream(packed, batch_size=10, transform=MASKING).state_dict()
    stream = TokenStream(packed, **{"batch_size": 10, "transform": MASKING, **change})
    with pytest.raises(ConfigError, match=words):
        stream.load_state_dict(state)


def test_a_state_of_other_data_or_no_state_is_refused(packed: Path, tmp_path: Path) -> None:
    state = TokenStream(packed, batch_size=10).state_dict()
    other = TokenStream(write_packed(tmp_path / "other", [100]), batch_size=10)
    with pytest.raises(ConfigError, match="digest of the data"):
        other.load_state_dict(state)
    stream = TokenStream(packed, batch_size=10)
    for broken in ({}, {**state, "rows": -1}, {**state, "rows": 15}, {**state, "version": 2}):
        with pytest.raises(ConfigError, match=r"state"):
            stream.load_state_dict(broken)


# What is refused


def test_padding_that_nobody_could_tell_is_refused(packed: Path) -> None:
    with pytest.raises(ConfigError, match="padding"):
        TokenStream(packed, batch_size=7, tail="pad")
    assert len(TokenStream(packed, batch_size=7, tail="even")) == 15  # a short batch, nothing padded

    def no_labels(batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        return batch

    with pytest.raises(ConfigError, match="padding"):
        list(TokenStream(packed, batch_size=7, tail="pad", transform=no_labels))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"rank": 2, "world_size": 2}, "rank is 2 of 2"),
        ({"rank": 0}, "give both or neither"),
        ({"tail": "keep"}, "tail is 'keep'"),
        ({"epoch": -1}, "epoch is -1"),
    ],
)
def test_a_bad_option_is_refused(packed: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TokenStream(packed, **{"batch_size": 4, **options})


def test_the_environment_gives_rank_and_world_size(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    stream = TokenStream(packed, batch_size=5)
    assert (stream.rank, stream.world_size, len(stream)) == (2, 4, 5)
    monkeypatch.setenv("WORLD_SIZE", "four")
    with pytest.raises(ConfigError, match="WORLD_SIZE"):
        TokenStream(packed, batch_size=5)


def test_damage_is_named_before_wrong_rows_are_given(packed: Path) -> None:
    victim = packed / "packed-00001-of-00003.arrow"
    content = victim.read_bytes()

    def first_pass(words: str) -> None:
        with pytest.raises(DataError, match=f"packed-00001-of-00003.*{words}"):
            list(TokenStream(packed, batch_size=10))

    victim.unlink()
    first_pass("missing")
    victim.write_bytes(content[:-8])
    first_pass("bytes")
    victim.write_bytes((packed / "packed-00000-of-00003.arrow").read_bytes()[: len(content)].ljust(len(content)))
    first_pass("")


def test_a_flipped_bit_is_named_where_digests_are_asked_for(packed: Path) -> None:
    victim = packed / "packed-00001-of-00003.arrow"
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    assert len(list(TokenStream(packed, batch_size=10))) == 10
    with pytest.raises(DataError, match=r"packed-00001-of-00003.*sha256"):
        list(TokenStream(packed, batch_size=10, options=StreamOptions(check="digests")))


def test_more_shards_than_open_files_are_allowed_by_default(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "many", [1] * 60)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 20, limits[1]))
    try:
        assert len(list(TokenStream(path))) == 60
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# Rows of several lengths


def test_rows_of_several_lengths_are_filled_up_to_the_longest_of_their_batch(tmp_path: Path, tokenizer: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"document {i} {'word ' * (i % 40)}\n" for i in range(200)))
    options = clozeline.PackOptions(max_length=64, packing="documents", bins=(16, 32, 64))
    run = clozeline.RunOptions(executor="serial")
    masking = clozeline.MaskOptions(seed=5, copies=2)
    clozeline.prepare(corpus, tmp_path / "out", tokenizer, None, options, masking, run)
    packed, masked = tmp_path / "out" / "packed", tmp_path / "out" / "masked"
    static = TokenStream(masked, batch_size=16, copy="epoch", epoch=1, tail="even", options=IDENTITY)
    fly = TokenStream(packed, batch_size=16, transform=Masking(seed=5), epoch=1, tail="even", options=IDENTITY)
    lengths = set()
    seen = 0
    for one, other in zip(static, fly, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[k], other[k]) for k in one)
        padding = one["attention_mask"] == 0
        assert (one["input_ids"][padding] == 0).all()
        assert (one["labels"][padding] == -100).all()
        for i, (shard, row) in enumerate(zip(one["shard"].tolist(), one["row"].tolist(), strict=True)):
            stored = Data(masked).shard(len(Data(packed).manifest.shards) + shard)
            ids = stored.take("input_ids", np.array([row]))[0]
            lengths.add(len(ids))
            assert one["input_ids"][i, : len(ids)].tolist() == ids.tolist()
            seen += 1
    assert lengths == {16, 32, 64}
    assert seen == len(TokenStream(packed))
    by_workers = list(TokenLoader(fly, num_workers=2))
    fly_again = list(fly)
    assert len(by_workers) == len(fly_again)
    for one, other in zip(by_workers, fly_again, strict=True):
        assert all(torch.equal(one[k], other[k]) for k in one)
