"""Provenance: which document every stretch of every row comes from, as a Parquet file beside each packed shard.

For takedown requests (which rows hold this document?) and memorisation audits (where does this row come from?).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from clozeline.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.parquet as pq

    from clozeline.packing.rows import Segments
    from clozeline.store.dataset import Data
    from clozeline.store.location import Location

FOLDER = "provenance"
SCHEMA = pa.schema(
    {
        "shard": pa.int32(),  # with `row`, where the stretch stands
        "row": pa.int64(),
        "start": pa.int32(),  # position of its first token in the row
        "tokens": pa.int32(),
        "doc_id": pa.string(),
        "source_offset": pa.int64(),  # of the document in its source: a byte in text and JSONL, else a row
        "text_bytes": pa.int64(),  # of the document, as UTF-8
        "first_token": pa.int64(),  # number of the stretch's first token within the document
        "document_tokens": pa.int64(),
    }
)


def provenance_name(file: str) -> str:
    """Of the file beside a packed shard: packed-00000-of-00008.arrow -> provenance/packed-00000-of-00008.parquet."""
    return f"{FOLDER}/{file.removesuffix('.arrow')}.parquet"


class ProvenanceWriter:
    """Writes the file of one packed shard."""

    def __init__(self, writer: pq.ParquetWriter, shard: int) -> None:
        self._writer, self._shard = writer, shard

    def write(self, segments: Segments, first_row: int, ids: Sequence[str], text_bytes: Sequence[int]) -> None:
        """Takes what stands in a block of rows.

        Args:
            first_row: number of the block's first row within the shard.
            ids, text_bytes: of the document of each segment.
        """
        columns = {
            "shard": [self._shard] * len(ids),
            "row": segments.row + first_row,
            "start": segments.start,
            "tokens": segments.tokens,
            "doc_id": ids,
            "source_offset": [int(i.rpartition(":")[2]) for i in ids],
            "text_bytes": text_bytes,
            "first_token": segments.offset,
            "document_tokens": segments.total,
        }
        arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
        self._writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))


@contextlib.contextmanager
def open_provenance(location: Location, file: str, shard: int) -> Iterator[ProvenanceWriter]:
    """The provenance of a packed shard; appears when the block ends well."""
    import pyarrow.parquet as pq  # 50 ms that only this needs

    with (
        location.writer(provenance_name(file)) as raw,
        pq.ParquetWriter(pa.PythonFile(raw, "w"), SCHEMA, compression="zstd") as writer,
    ):
        yield ProvenanceWriter(writer, shard)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Consecutive tokens of one document in one row.

    Attributes:
        row: number within the data set; `shard` and `shard_row` say the same by shard.
        start, tokens: where in the row, and how many.
        doc_id, source_offset, text_bytes: which document, where it begins in its source (a byte in text and JSONL, else a
            row), and its bytes.
        first_token, document_tokens: which of the document's tokens is the first one here, and how many there are.
    """

    row: int
    shard: int
    shard_row: int
    start: int
    tokens: int
    doc_id: str
    source_offset: int
    text_bytes: int
    first_token: int
    document_tokens: int


def find_document(data: Data, doc_id: str) -> list[Stretch]:
    """Everything of a document that stands in the rows of a packed data set, in their order.

    Raises:
        DataError: packed without provenance.
    """
    found = []
    for shard in range(len(data.manifest.shards)):
        found += _stretches(data, shard, ("doc_id", "=", doc_id))
    return found


def find_sources(data: Data, row: int) -> list[Stretch]:
    """What stands in a row, by its number within a packed data set.

    Raises:
        DataError: packed without provenance, or no such row.
    """
    left = row
    for shard, entry in enumerate(data.manifest.shards):
        if left < entry.rows:
            return _stretches(data, shard, ("row", "=", left))
        left -= entry.rows
    raise DataError(f"{data.location}: has no row {row}; there are {data.manifest.rows:,}, numbered from 0")


def _stretches(data: Data, shard: int, wanted: tuple[str, str, object]) -> list[Stretch]:
    import pyarrow.parquet as pq

    entries = data.manifest.shards
    name = provenance_name(entries[shard].file)
    if not data.metadata.config.get("provenance"):
        raise DataError(
            f"{data.location}: packed without --provenance, or not packed data: where rows come from is not known"
        )
    try:
        table = pq.read_table(pa.BufferReader(data.location.read(name)), filters=[wanted])
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{data.location}/{name}: cannot be read ({error}); restore it or pack again") from error
    before = sum(e.rows for e in entries[:shard])
    return [
        Stretch(**{**found, "row": before + found["row"], "shard_row": found["row"]}) for found in table.to_pylist()
    ]
