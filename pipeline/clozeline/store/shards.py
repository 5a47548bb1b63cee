"""Shard files: Arrow IPC stream format, uncompressed, so that rows are read straight from a memory map.

Shapes: B rows asked for, L positions per row.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from clozeline.errors import DataError
from clozeline.store.arrays import from_bytes, from_numpy, to_numpy
from clozeline.store.json_values import parse_json
from clozeline.store.manifest import Metadata, ShardEntry
from clozeline.store.schema import KEY, shard_schema
from clozeline.store.sections import section

if TYPE_CHECKING:
    from mmap import mmap
    from types import TracebackType

    from numpy.typing import NDArray

    from clozeline.store.location import Location

RESTORE = "restore it or prepare the data again"
_END_OF_STREAM = 8  # bytes: the continuation mark and a zero length


def shard_name(prefix: str, index: int, count: int) -> str:
    """`masked-00003-of-00008.arrow`."""
    return f"{prefix}-{index:05d}-of-{count:05d}.arrow"


class ShardWriter:
    """Writes one shard; it appears under its name when the `with` block ends without an error, and `entry` then describes it.

    Every batch written but the last must have `rows_per_batch` rows (readers find rows by arithmetic); text is exempt.
    """

    entry: ShardEntry

    def __init__(
        self,
        location: Location,
        name: str,
        columns: dict[str, pa.DataType],
        metadata: Metadata,
        *,
        copy: int,
        shard: int,
        row_length: int | None = None,
    ) -> None:
        self._schema = shard_schema(columns, metadata, copy=copy, shard=shard)
        self._name, self._copy, self._shard = name, copy, shard
        self._manager = location.writer(name)
        self._row_length = row_length or _row_length(self._schema)
        self._rows = self._tokens = 0

    def __enter__(self) -> ShardWriter:
        self._file = self._manager.__enter__()
        self._stream = pa.ipc.new_stream(self._file, self._schema)
        return self

    def write(self, columns: dict[str, Any]) -> None:
        """Appends one record batch.

        Args:
            columns: for each column of the schema a numpy array, (rows, L) or (rows,), of exactly the column's dtype,
                or an Arrow array. Of others only `num_tokens` is looked at, for the number of tokens.
        """
        arrays = [_to_arrow(columns[field.name], field.type) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        with section("write"):
            self._stream.write_batch(batch)
        self._rows += batch.num_rows
        if "num_tokens" in columns:
            self._tokens += int(columns["num_tokens"].sum(dtype=np.int64))

    def write_text(self, ids: list[str], texts: list[bytes]) -> None:
        """Appends documents as one record batch; `texts` are UTF-8."""
        names = from_bytes([i.encode() for i in ids], pa.string())
        self.write({"doc_id": names, "text": from_bytes(texts, pa.large_string())})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._stream.close()
        self._manager.__exit__(kind, error, trace)
        if error is None:
            self.entry = ShardEntry(
                file=self._name,
                copy=self._copy,
                shard=self._shard,
                rows=self._rows,
                tokens=self._tokens,
                bytes=self._file.bytes,
                sha256=self._file.sha256,
                row_length=self._row_length,
            )


def map_shard(location: Location, entry: ShardEntry) -> mmap | bytes:
    """The bytes of a shard, mapped.

    Raises:
        DataError: missing, or not as long as the manifest says. (Digests are for `verify`.)
    """
    path = f"{location}/{entry.file}"
    try:
        data = location.map(entry.file)
    except FileNotFoundError as error:
        raise DataError(f"{path}: named in the manifest, but missing; {RESTORE}") from error
    if len(data) != entry.bytes:
        raise DataError(f"{path}: {len(data):,} bytes, the manifest says {entry.bytes:,}; {RESTORE}")
    return data


def _row_length(schema: pa.Schema) -> int | None:
    length: int | None = schema.field("input_ids").type.list_size if "input_ids" in schema.names else None
    return length


def _to_arrow(values: Any, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else from_numpy(values, kind)


class TokenShard:
    """Random access to the rows of one token shard, without reading the file.

    Every record batch but the last has the same number of rows of fixed width, so all of these messages have the same
    length: row r is at batch r // n, place r % n, and where a column of a batch begins is known for all of them. Rows are
    gathered from a view of the file in which a row begins at every value.

    Args:
        entry: what the manifest says; its bytes and rows are checked here, its digest is not (`verify` does).

    Raises:
        DataError: missing, cut short, or not what the manifest says.
    """

    def __init__(self, location: Location, entry: ShardEntry) -> None:
        self.entry = entry
        self.path = f"{location}/{entry.file}"
        self._bytes = np.frombuffer(map_shard(location, entry), np.uint8)
        try:
            self._map_columns()
        except (
            pa.ArrowException,
            OSError,
            ValueError,
            IndexError,
            TypeError,
            KeyError,
            OverflowError,
            EOFError,
        ) as error:
            raise DataError(f"{self.path}: not a readable Arrow stream ({error}); {RESTORE}") from error

    def _map_columns(self) -> None:
        buffer = pa.py_buffer(self._bytes)
        source = pa.BufferReader(buffer)
        schema = pa.ipc.read_schema(source)
        if KEY not in (schema.metadata or {}):
            raise ValueError("no clozeline metadata in its schema")
        self.schema_metadata = parse_json(schema.metadata[KEY])
        self.metadata = Metadata.from_json(
            {k: v for k, v in self.schema_metadata.items() if k not in ("copy", "shard")}
        )
        self.types = dict(zip(schema.names, schema.types, strict=True))
        self._windows: dict[str, NDArray[Any]] = {}  # (values, L) or (values,): the row that begins at each value
        self._starts: dict[str, NDArray[np.int64]] = {}  # for each record batch the value where the column begins
        self._step: dict[str, int] = {}  # from row to row, in values
        self.batch_rows = 1
        if not self.entry.rows:
            return
        start = source.tell()
        first = _read_batch(source, schema)
        length = source.tell() - start  # of one message
        if not first.num_rows:
            raise ValueError("its first batch is empty")
        full, rest = divmod(self.entry.rows, first.num_rows)
        self.batch_rows = first.num_rows
        end = start + full * length
        last = None
        if rest:
            source.seek(end)
            last = _read_batch(source, schema)
            if last.num_rows != rest:
                raise ValueError(f"its last batch has {last.num_rows} rows, {rest} expected from the manifest")
            end = source.tell()
        if end + _END_OF_STREAM != self.entry.bytes:
            raise ValueError(f"{self.entry.bytes - end} bytes after its last batch, {_END_OF_STREAM} expected")
        for name, kind in self.types.items():
            if pa.types.is_fixed_size_list(kind) or pa.types.is_primitive(kind):
                view = _column(first, name)
                starts = self._offset(view) + np.arange(full, dtype=np.int64) * length
                if last is not None:
                    starts = np.append(starts, self._offset(_column(last, name)))
                self._map_column(name, view.dtype, view.shape[1:], starts)

    def _offset(self, view: NDArray[Any]) -> int:
        """Where in the file a column of a record batch begins, in bytes."""
        return int(view.__array_interface__["data"][0] - self._bytes.__array_interface__["data"][0])

    def _map_column(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], starts: NDArray[np.int64]) -> None:
        """
        Args:
            shape: of a row, (L,) or ().
            starts: where the column begins in each record batch, in bytes.
        """
        step, last_rows = prod(shape), (self.entry.rows - 1) % self.batch_rows + 1
        ends = starts + self.batch_rows * step * dtype.itemsize
        ends[-1] = starts[-1] + last_rows * step * dtype.itemsize
        if starts.min() < 0 or ends.max() > len(self._bytes) or (starts % dtype.itemsize).any():
            raise ValueError(f"column {name} lies outside of the file, or not at a multiple of {dtype.itemsize} bytes")
        values = len(self._bytes) // dtype.itemsize
        windows = (values - step + 1, *shape)
        self._windows[name] = np.ndarray(windows, dtype, self._bytes, 0, (dtype.itemsize,) * len(windows))
        self._starts[name], self._step[name] = starts // dtype.itemsize, step

    def columns(self) -> list[str]:
        return list(self._windows)

    def dtype(self, name: str) -> np.dtype[Any]:
        return self._windows[name].dtype

    def row_shape(self, name: str) -> tuple[int, ...]:
        """(L,) for a column with a value for each position, () for one with a value for each row."""
        return self._windows[name].shape[1:]

    def take(self, name: str, rows: NDArray[np.int64], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Rows by number, in the order given: (B, L) or (B,), copied out of the map."""
        if out is None:
            out = np.empty((len(rows), *self.row_shape(name)), self.dtype(name))
        self.take_into({name: out}, rows, slice(None))
        return out

    def take_into(
        self, columns: dict[str, NDArray[Any]], rows: NDArray[np.int64], where: NDArray[np.int64] | slice
    ) -> None:
        """Copies rows by number to `where` in arrays that may be of wider integers.

        Args:
            columns: (B', L) or (B',) by name.
            rows: int64 (B,).
            where: B places in the first dimension of the columns.

        Raises:
            IndexError: there is no such row.

        Runs of rows go as whole pieces: converted straight out of the map, without a copy in between.
        """
        if not len(rows):
            return
        if rows.view(np.uint64).max() >= self.entry.rows:  # below zero is far above
            raise IndexError(f"{self.path}: rows {rows.min()} to {rows.max()}, it has {self.entry.rows}")
        n = self.batch_rows
        if isinstance(where, slice) and len(rows) > 1 and bool((rows[1:] - rows[:-1] == 1).all()):
            first, end = int(rows[0]), int(rows[-1]) + 1
            for name, out in columns.items():
                place = out[where]
                for start in range(first - first % n, end, n):
                    low, high = max(first, start), min(end, start + n)
                    place[low - first : high - first] = self._piece(name, start // n, low - start, high - start)
            return
        batch, row = rows // n, rows % n
        for name, out in columns.items():
            out[where] = self._windows[name][self._starts[name][batch] + row * self._step[name]]

    def _piece(self, name: str, batch: int, first: int, end: int) -> NDArray[Any]:
        """Rows of one record batch: a view, (end - first, L) or (end - first,)."""
        start, step = int(self._starts[name][batch]), self._step[name]
        return self._windows[name][start + first * step : start + (end - 1) * step + 1 : step]

    def batches(self, *names: str) -> Any:
        """All rows in order, a record batch at a time: dicts of (n, L) or (n,) views into the map."""
        wanted = names or tuple(self._windows)
        for batch, first in enumerate(range(0, self.entry.rows, self.batch_rows)):
            count = min(self.batch_rows, self.entry.rows - first)
            yield {name: self._piece(name, batch, 0, count) for name in wanted}


def _read_batch(source: pa.BufferReader, schema: pa.Schema) -> pa.RecordBatch:
    """The next batch; its buffers are as long as its rows need."""
    batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), schema)
    batch.validate()
    return batch


def _column(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    """A zero-copy view of a column: (rows, L) or (rows,)."""
    array = batch.column(name)
    if array.null_count:
        raise ValueError(f"column {name} has missing values")
    if pa.types.is_fixed_size_list(array.type):
        return to_numpy(array.flatten()).reshape(batch.num_rows, array.type.list_size)
    return to_numpy(array)
