"""Provenance: which document every stretch of every row comes from, as a Parquet file beside each packed shard.

For takedown requests (which rows hold this document?) and memorisation audits (where does this row come from?).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clozeline.packing.rows import Segments
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
    with (
        location.writer(provenance_name(file)) as raw,
        pq.ParquetWriter(pa.PythonFile(raw, "w"), SCHEMA, compression="zstd") as writer,
    ):
        yield ProvenanceWriter(writer, shard)
