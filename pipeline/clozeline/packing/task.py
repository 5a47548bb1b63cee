"""What the jobs of a packing run have in common: the task, and the packed data set as a place for rows."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clozeline.packing.parts import PartPlan
from clozeline.store.location import WORK
from clozeline.store.output import ShardResult
from clozeline.store.schema import packed_columns
from clozeline.store.shards import ShardWriter, shard_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from clozeline.packing.options import PackOptions
    from clozeline.store.ledger import Ledger
    from clozeline.store.location import Location
    from clozeline.store.manifest import Metadata, TokenizerFacts
    from clozeline.store.sinks import RowSink

STAGE = "packing"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRows:
    """The packed data set as a place for rows."""

    location: Location
    metadata: Metadata
    count: int

    def files(self, shard: int) -> tuple[tuple[str, str], ...]:
        return ((STAGE, shard_name("packed", shard, self.count)),)

    @contextlib.contextmanager
    def open(self, shard: int, row_length: int) -> Iterator[_PackedShard]:
        columns = packed_columns(self.metadata, row_length)
        writer = ShardWriter(self.location, self.files(shard)[0][1], columns, self.metadata, copy=0, shard=shard)
        with writer:
            yield _PackedShard(writer)


@dataclass(frozen=True, slots=True)
class _PackedShard:
    writer: ShardWriter

    def write(self, columns: dict[str, NDArray[Any]], first_row: int) -> None:
        self.writer.write(columns)

    def results(self, ledger: Ledger, read: Ledger | None) -> list[ShardResult]:
        return [ShardResult(stage=STAGE, entry=self.writer.entry, ledger=ledger, read=read)]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackTask:
    """What every job of a packing run needs; picklable.

    Attributes:
        location: of the packed data set.
        tokenizer_path, engine: loaded once in each worker process.
        text_shards: how many there are.
        sinks: where the rows go.
    """

    options: PackOptions
    metadata: Metadata
    location: Location
    tokenizer_path: str
    engine: str
    text_shards: int
    sinks: tuple[RowSink, ...]

    @property
    def count(self) -> int:
        """Packed shards."""
        return self.text_shards * self.options.parts

    @property
    def token_store(self) -> Location:
        """Where a first pass keeps the corpus as tokens for `pairs`."""
        return self.location / WORK / "tokens"

    @property
    def facts(self) -> TokenizerFacts:
        assert self.metadata.tokenizer is not None
        return self.metadata.tokenizer

    def packed_shards(self, shard: int, copy: int = 0) -> tuple[int, ...]:
        """Indices of the packed shards of a text shard: the first of all bins are those of the shortest rows."""
        bins = len(self.options.bins) or 1
        return tuple((copy * bins + b) * self.text_shards + shard for b in range(bins))

    def files(self, shard: int, copy: int = 0) -> tuple[tuple[str, str], ...]:
        """(stage, name) of all that a text shard becomes."""
        packed = self.packed_shards(shard, copy)
        return tuple(file for sink in self.sinks for index in packed for file in sink.files(index))

    def part_plan(self, shard: int, copy: int = 0) -> PartPlan:
        packed = self.packed_shards(shard, copy)
        names = tuple(shard_name("packed", index, self.count) for index in packed)
        options = self.options
        return PartPlan(
            shards=packed,
            lengths=options.bins or (options.max_length,),
            document_slots=self.metadata.config.get("document_slots"),
            head=len(self.facts.prefix_ids) if options.add_prefix else 0,
            provenance=(self.location, names) if options.provenance else None,
        )
