"""The global shuffle, in two passes and bounded memory.

Every document has a random word, a function of the seed and its id; the shuffled corpus is the documents in order of
their words. The first pass sorts what fits in memory and spills it, cut at bucket edges; the second merges bucket by bucket.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from clozeline.sharding.select import ORDER, Selected, document_words
from clozeline.store.arrays import from_bytes, from_numpy, to_numpy
from clozeline.store.documents import Documents
from clozeline.store.ledger import Ledger
from clozeline.store.sections import timed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clozeline.store.location import Location
    from clozeline.store.output import ShardResult

_SPILL_BYTES = 64 * 2**20
_SCHEMA = pa.schema({"word": pa.uint64(), "doc_id": pa.string(), "text": pa.large_binary()})


def bucket_count(total_bytes: int, shards: int) -> int:
    """Buckets of about `_SPILL_BYTES` of text, a whole number for each shard."""
    return shards * max(1, -(-total_bytes // (shards * _SPILL_BYTES)))


@dataclass(frozen=True, kw_only=True, slots=True)
class SpillJob:
    """First pass over one source."""

    source: Selected
    place: Location
    buckets: int

    @property
    def name(self) -> str:
        return f"shuffle of shard {self.source.shards[0]}"

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        return ()

    @property
    def is_done(self) -> bool:
        return all(self.place.exists(f"{shard:05d}.json") for shard in self.source.shards)

    def __call__(self) -> list[ShardResult]:
        for shard, ledger, stream in self.source.read():
            spills: list[list[int]] = []
            held: list[Documents] = []
            held_bytes = 0
            for documents in stream:
                if not documents.ids:  # all of them dropped
                    continue
                held.append(documents)
                held_bytes += sum(map(len, documents.texts))
                if held_bytes >= _SPILL_BYTES:
                    spills.append(self._spill(shard, len(spills), held))
                    held, held_bytes = [], 0
            if held:
                spills.append(self._spill(shard, len(spills), held))
            self.place.write(f"{shard:05d}.json", json.dumps({"spills": spills, "ledger": ledger.to_json()}).encode())
        return []

    def _spill(self, shard: int, run: int, held: list[Documents]) -> list[int]:
        """Writes documents in order of their words; returns the buckets that have any, one record batch each."""
        ids = [i for documents in held for i in documents.ids]
        texts = [t for documents in held for t in documents.texts]
        words = document_words(self.source.options.seed, (i.encode() for i in ids), ORDER)
        order = np.argsort(words, kind="stable")
        buckets = [int(word) * self.buckets >> 64 for word in words[order]]
        present, starts = np.unique(buckets, return_index=True)
        with self.place.writer(f"{shard:05d}-{run:03d}.arrow") as file, pa.ipc.new_file(file, _SCHEMA) as spill:
            for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
                part = order[start:stop].tolist()
                columns = [
                    from_numpy(words[part], pa.uint64()),
                    from_bytes([ids[i].encode() for i in part], pa.string()),
                    from_bytes([texts[i] for i in part], pa.large_binary()),
                ]
                spill.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
        return [int(b) for b in present]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shuffled:
    """Second pass: the documents of one shard of the shuffled corpus."""

    shard: int
    count: int
    place: Location
    buckets: int

    @property
    def shards(self) -> tuple[int, ...]:
        return (self.shard,)

    def read(self) -> Iterator[tuple[int, Ledger, Iterator[Documents]]]:
        # The account of what was read and dropped in the first pass goes to the shard of the same number, that of the
        # documents to the shard where they come out: both close, and so does their sum.
        ledger = Ledger.from_json(json.loads(self.place.read(f"{self.shard:05d}.json"))["ledger"])
        ledger.documents.taken -= ledger.documents.out
        ledger.documents.out = 0
        yield self.shard, ledger, timed("read", self._documents(ledger))

    def _documents(self, ledger: Ledger) -> Iterator[Documents]:
        runs: list[tuple[str, list[int]]] = []
        for source in range(self.count):
            spills = json.loads(self.place.read(f"{source:05d}.json"))["spills"]
            runs += [(f"{source:05d}-{run:03d}.arrow", present) for run, present in enumerate(spills)]
        share = self.buckets // self.count
        for bucket in range(self.shard * share, (self.shard + 1) * share):
            tables = []
            for name, present in runs:
                if bucket in present:
                    reader: Any = pa.ipc.open_file(pa.py_buffer(self.place.map(name)))
                    tables.append(reader.get_batch(present.index(bucket)))
            if not tables:
                continue
            words = np.concatenate([to_numpy(t.column("word")) for t in tables])
            ids = [i for t in tables for i in t.column("doc_id").to_pylist()]
            texts = [x for t in tables for x in t.column("text").to_pylist()]
            order = np.argsort(words, kind="stable").tolist()
            ledger.documents.taken += len(order)
            ledger.documents.out += len(order)
            yield Documents([ids[i] for i in order], [texts[i] for i in order])
