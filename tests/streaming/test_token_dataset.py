"""TokenDataset: the same rows and masks by number; and uses of a stream that would lose rows are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from stream_data import LENGTH, number_of
from torch.utils.data import DataLoader, RandomSampler

from clozeline import Masking, TokenDataset, TokenStream
from clozeline.errors import ConfigError
from clozeline.mask_function import MaskRule
from clozeline.streaming.stream import StreamOptions

MASKING = Masking(seed=11, rule=MaskRule(mask_prob=0.4))


def test_rows_and_masks_are_those_of_the_stream(packed: Path) -> None:
    dataset = TokenDataset(packed, transform=MASKING)
    for epoch in (0, 3):
        dataset.set_epoch(epoch)
        for n, row in enumerate(TokenStream(packed, transform=MASKING, shuffle=None, epoch=epoch)):
            for other in (dataset[n], dataset[n - 100], dataset.__getitems__([5, n])[1]):
                assert row.keys() == other.keys()
                assert all(torch.equal(row[k], other[k]) for k in row)
    assert len(dataset) == 100
    with pytest.raises(IndexError):
        dataset[100]


def test_any_sampler_and_workers_that_live_on(packed: Path) -> None:
    dataset = TokenDataset(packed, transform=MASKING, options=StreamOptions(identity=True))
    loader = DataLoader(dataset, batch_size=16, sampler=RandomSampler(dataset), num_workers=2, persistent_workers=True)
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        expected = {
            int(r["global_row"]): r
            for r in TokenStream(packed, transform=MASKING, epoch=epoch, options=StreamOptions(identity=True))
        }
        for batch in loader:
            assert batch["input_ids"].shape[1:] == (LENGTH,)
            for i, row in enumerate(batch["global_row"].tolist()):
                one = expected.pop(row)
                assert torch.equal(one["input_ids"], batch["input_ids"][i])
                assert torch.equal(one["labels"], batch["labels"][i])
        assert not expected


def test_static_copies_follow_the_epoch(masked: Path) -> None:
    dataset = TokenDataset(masked, copy="epoch")
    first = dataset[7]["input_ids"]
    dataset.set_epoch(1)
    assert not torch.equal(dataset[7]["input_ids"], first)
    dataset.set_epoch(2)
    assert torch.equal(dataset[7]["input_ids"], first)
    assert len(dataset) == 100


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_batches_are_refused(packed: Path, workers: int) -> None:
    with pytest.raises(ConfigError, match="whole batches"):
        next(iter(DataLoader(TokenStream(packed, batch_size=4), batch_size=4, num_workers=workers)))


def test_splitting_what_is_split_already_is_refused(packed: Path) -> None:
    from accelerate.data_loader import IterableDatasetShard

    for workers in (0, 2):
        split = IterableDatasetShard(TokenStream(packed, rank=0, world_size=2), 5, num_processes=2, process_index=0)
        with pytest.raises(ConfigError, match=r"rank=0, world_size=1"):
            next(iter(DataLoader(split, batch_size=5, num_workers=workers)))
    parts = []
    for rank in range(2):
        whole = TokenStream(packed, rank=0, world_size=1)
        split = IterableDatasetShard(whole, 5, num_processes=2, process_index=rank)
        parts += [n for b in DataLoader(split, batch_size=5) for n in number_of(b["input_ids"].numpy()).tolist()]
    assert sorted(parts) == list(range(100))


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 5, 14])
def test_torchdata_resumes_a_stream(packed: Path, workers: int, stop: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def loader() -> Any:
        return stateful(
            TokenStream(packed, batch_size=7, tail="even", transform=MASKING), batch_size=None, num_workers=workers
        )

    expected = list(TokenStream(packed, batch_size=7, tail="even", transform=MASKING))
    first = loader()
    iterator = iter(first)
    for _ in range(stop):
        next(iterator)
    state = first.state_dict()
    del iterator, first
    again = loader()
    again.load_state_dict(state)
    rest = list(again)
    assert [b["input_ids"].tolist() for b in rest] == [b["input_ids"].tolist() for b in expected[stop:]]
