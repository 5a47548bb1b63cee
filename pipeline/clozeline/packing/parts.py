"""The packed shards that one text shard becomes: one, or one for each length bin, written side by side."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clozeline.packing.provenance import open_provenance
from clozeline.packing.rows import Block, RowBlocks, document_lengths
from clozeline.store.ledger import Account, Ledger
from clozeline.store.schema import rows_per_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clozeline.packing.provenance import ProvenanceWriter
    from clozeline.packing.rows import Integers
    from clozeline.store.location import Location
    from clozeline.store.output import ShardResult
    from clozeline.store.sinks import OpenShard, RowSink

    Origins = Callable[[Integers, int], tuple[list[str], list[int]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class PartPlan:
    """Where the rows of one text shard go.

    Attributes:
        shards: indices of the packed shards, one for each length.
        lengths: L of each, ascending; a row goes to the first that holds it.
        document_slots: width of `document_lengths`; None where the column is not asked for.
        head: ids before a document in the middle of a row that belong to it.
        provenance: the packed data set's folder and the file of each shard; None where it is not asked for.
    """

    shards: tuple[int, ...]
    lengths: tuple[int, ...]
    document_slots: int | None
    head: int
    provenance: tuple[Location, tuple[str, ...]] | None


class Parts:
    """The open shards of one text shard.

    Args:
        origins: gives ids and bytes of documents by number, and is told below which number it will not be asked again; called
            for provenance only.
        ledger: of the text shard; told of rows and of what stands in them.
    """

    def __init__(
        self, plan: PartPlan, opened: list[_Part], origins: Origins, ledger: Ledger, *, count_cuts: bool
    ) -> None:
        self._plan, self._parts, self._origins, self._ledger = plan, opened, origins, ledger
        self._count_cuts = count_cuts

    def add(self, block: Block) -> None:
        """Takes rows of the longest length."""
        segments, counts = block.segments, self._ledger.counts
        self._ledger.tokens.out += int(block.columns["num_tokens"].sum(dtype=np.int64))
        counts["document_parts"] += len(segments.row)
        if self._count_cuts:  # a document is cut when its first part is not all of it
            counts["documents_cut"] += int(((segments.offset == 0) & (segments.tokens < segments.total)).sum())
        for part, rows in zip(self._parts, self._binned(block), strict=True):
            for full in part.blocks.add(rows):
                self._write(part, full)

    def finish(self) -> None:
        for part in self._parts:
            for rest in part.blocks.finish():
                self._write(part, rest)

    def _binned(self, block: Block) -> Iterator[Block]:
        if len(self._parts) == 1:
            yield block
            return
        bins = np.searchsorted(self._plan.lengths, block.columns["num_tokens"])
        longest = self._plan.lengths[-1]
        for number, length in enumerate(self._plan.lengths):
            chosen = bins == number
            columns = {
                name: values[chosen, :length] if values.ndim == 2 else values[chosen]
                for name, values in block.columns.items()
            }
            self._ledger.counts["padding"] -= int(chosen.sum()) * (longest - length)
            inside = chosen[block.segments.row]
            segments = block.segments._replace(row=(np.cumsum(chosen) - 1)[block.segments.row])
            yield Block(columns, type(segments)(*(values[inside] for values in segments)))

    def _write(self, part: _Part, block: Block) -> None:
        plan, columns = self._plan, block.columns
        if plan.document_slots is not None:
            lengths = document_lengths(block.segments, columns["num_tokens"], plan.document_slots, plan.head)
            columns = {**columns, "document_lengths": lengths}
        for sink in part.sinks:
            sink.write(columns, part.rows)
        if part.provenance is not None:
            # Later rows hold no earlier document than the last row's first; of rows in other bins nothing is known.
            documents, row = block.segments.document, block.segments.row
            done = int(documents[row == row[-1]].min()) if len(row) and len(self._parts) == 1 else 0
            part.provenance.write(block.segments, part.rows, *self._origins(documents, done))
        part.rows += block.rows
        part.tokens += int(columns["num_tokens"].sum(dtype=np.int64))

    def results(self, read: Ledger | None) -> list[ShardResult]:
        """What was written, once closed. The account of the text shard is entered with its first packed shard."""
        whole, rest = self._ledger, sum(part.tokens for part in self._parts[1:])
        first = Ledger(whole.documents, whole.tokens, whole.counts)
        first.tokens.taken -= rest
        first.tokens.out -= rest
        results = []
        for part in self._parts:
            ledger = first if part is self._parts[0] else Ledger(tokens=Account(taken=part.tokens, out=part.tokens))
            for sink in part.sinks:
                results += sink.results(ledger, read if part is self._parts[0] else None)
        return results


class _Part:
    def __init__(self, sinks: list[OpenShard], provenance: ProvenanceWriter | None, length: int) -> None:
        self.sinks, self.provenance = sinks, provenance
        self.blocks = RowBlocks(rows_per_batch(length))
        self.rows = self.tokens = 0


@contextlib.contextmanager
def open_parts(
    plan: PartPlan, sinks: Sequence[RowSink], origins: Origins, ledger: Ledger, *, count_cuts: bool = True
) -> Iterator[Parts]:
    """Opens every shard; they are complete and closed when the block ends well."""
    with contextlib.ExitStack() as stack:
        opened = []
        for number, (shard, length) in enumerate(zip(plan.shards, plan.lengths, strict=True)):
            provenance = None
            if plan.provenance is not None:
                location, files = plan.provenance
                provenance = stack.enter_context(open_provenance(location, files[number], shard))
            opened.append(_Part([stack.enter_context(s.open(shard, length)) for s in sinks], provenance, length))
        parts = Parts(plan, opened, origins, ledger, count_cuts=count_cuts)
        yield parts
        parts.finish()
