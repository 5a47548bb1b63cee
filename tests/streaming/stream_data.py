"""Token data sets of any shape, written in milliseconds: row n of the data set begins with [CLS] and spells n."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clozeline.store.ledger import Ledger
from clozeline.store.location import Location
from clozeline.store.manifest import NAME, Manifest, Metadata, TokenizerFacts
from clozeline.store.schema import packed_columns
from clozeline.store.shards import ShardWriter, shard_name

LENGTH = 12
FACTS = TokenizerFacts(
    sha256="0" * 64,
    vocabulary_sha256="1" * 64,
    vocabulary_size=100,
    mask_id=4,
    pad_id=0,
    unk_id=1,
    separator_id=3,
    prefix_ids=(2,),
    suffix_ids=(3,),
    pair_ids=(3,),
    special_ids=(0, 1, 2, 3, 4),
    ordinary_ranges=((5, 99),),
)


def row_ids(numbers: np.ndarray) -> np.ndarray:
    """[CLS], the digits of the row's number as ids from 5, [SEP]: uint16 (R, LENGTH)."""
    ids = np.full((len(numbers), LENGTH), 2, np.uint16)
    for t in range(1, LENGTH - 1):
        ids[:, t] = 5 + numbers // 10 ** (t - 1) % 10
    ids[:, -1] = 3
    return ids


def number_of(ids: np.ndarray) -> np.ndarray:
    """The number that each row spells, int64 (R,)."""
    return sum((np.asarray(ids)[:, t].astype(np.int64) - 5) * 10 ** (t - 1) for t in range(1, LENGTH - 1))


def write_packed(folder: Path, shards: Sequence[int], batch_rows: int = 7) -> Path:
    """A packed data set with so many rows in each shard, `batch_rows` rows in a record batch."""
    location = Location(folder)
    metadata = Metadata(
        stage="packing", config={"max_length": LENGTH}, upstream="2" * 64, row_length=LENGTH, tokenizer=FACTS
    )
    columns = packed_columns(metadata)
    entries, first = [], 0
    with location.lock():
        for index, rows in enumerate(shards):
            name = shard_name("packed", index, len(shards))
            with ShardWriter(location, name, columns, metadata, copy=0, shard=index) as writer:
                for i in range(first, first + rows, batch_rows):
                    ids = row_ids(np.arange(i, min(i + batch_rows, first + rows)))
                    writer.write(
                        {
                            "input_ids": ids,
                            "attention_mask": np.ones(ids.shape, np.uint8),
                            "num_tokens": np.full(len(ids), LENGTH, np.uint16),
                        }
                    )
            entries.append(writer.entry)
            first += rows
        location.write(NAME, Manifest(metadata=metadata, ledger=Ledger(), shards=tuple(entries)).to_file().encode())
        location.remove_work()
    return folder
