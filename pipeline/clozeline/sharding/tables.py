"""Formats made of rows: Parquet, Arrow (file and stream format), data sets of the Hugging Face hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from clozeline.errors import InputError
from clozeline.store.objects import is_url, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clozeline.sharding.files import InputFile

_ROWS_AT_A_TIME = 1024
# What pyarrow raises for damaged files; the last three where it believes a length, a number or a name that is wrong.
_DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, SystemError)


def hub_dataset(name: str) -> Any:
    """`NAME[@SPLIT]` by `datasets`; a local folder written by `save_to_disk` will do as well."""
    import datasets

    place, _, split = name.partition("@")
    try:
        try:
            data = datasets.load_from_disk(place)
            if isinstance(data, datasets.DatasetDict):
                data = data[split or "train"]
        except FileNotFoundError:
            data = datasets.load_dataset(place, split=split or "train")
    except Exception as error:
        raise InputError(f"hf:{name}: cannot be loaded by `datasets` ({type(error).__name__}: {error})") from error
    return data


def count_rows(file: InputFile) -> int:
    """Rows of a Parquet or Arrow file.

    Raises:
        InputError: damaged, cut short or something else.
    """
    try:
        if file.format == "parquet":
            import pyarrow.parquet

            return int(pyarrow.parquet.read_metadata(_opened(file.path)).num_rows)
        return sum(batch.num_rows for batch in _arrow_batches(file.path))
    except _DAMAGE as error:
        raise _unreadable(file, error) from error


def _unreadable(file: InputFile, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.errno:
        return error  # a fault of the machine, not of the file
    return InputError(f"{file.path}: not a readable {file.format} file ({error}); fetch it again")


def _arrow_batches(path: str) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file, or of a stream that has its end mark and nothing behind it."""
    source = _opened(path) if is_url(path) else pa.memory_map(path)
    try:
        reader = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        end = source.tell()
        for batch in stream:
            end = source.tell()
            yield batch
        size = source.size()
        if end == size:
            raise pa.ArrowInvalid("the end mark of the stream is missing") from None
        if source.tell() < size:
            raise pa.ArrowInvalid(f"{size - source.tell():,} bytes behind the end of the stream") from None
    else:
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


def _opened(path: str) -> Any:
    """What pyarrow opens: a local path, or a file that reads what a URL names."""
    return pa.PythonFile(open_file(path), "r") if is_url(path) else path


def table_texts(file: InputFile, first: int, last: int, field: str) -> Iterator[tuple[int, list[bytes | None]]]:
    """The text column of rows [first, last): (number of the first row, values as bytes), a batch at a time.

    Raises:
        InputError: no such column, or one that holds no text.
    """
    row = 0
    try:
        for batch in _batches(file, first, last, field):
            start, stop = max(first - row, 0), min(last - row, batch.num_rows)
            if start < stop:
                yield row + start, _bytes(batch.column(0).slice(start, stop - start))
            row += batch.num_rows
            if row >= last:
                return
    except _DAMAGE as error:
        raise _unreadable(file, error) from error


def _bytes(column: pa.Array) -> list[bytes | None]:
    """The values, whether or not they are UTF-8; damaged offsets are found here, before they are followed."""
    while pa.types.is_dictionary(column.type):
        column.validate(full=True)
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    for text, binary in ((pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())):
        if column.type == text:
            column = column.view(binary)
    column.validate(full=True)
    values: list[bytes | None] = column.to_pylist()
    return values


def _batches(file: InputFile, first: int, last: int, field: str) -> Iterator[pa.RecordBatch]:
    """Record batches of one text column, from row 0 on; rows before `first` may come as nulls that cost nothing."""
    if file.format == "hf":
        data = hub_dataset(file.path)
        _check_column(file, data.features.arrow_schema, field)
        yield pa.record_batch({field: pa.nulls(first, pa.large_string())})
        for start in range(first, last, _ROWS_AT_A_TIME):
            yield pa.record_batch(
                {field: pa.array(data[start : min(start + _ROWS_AT_A_TIME, last)][field], pa.large_string())}
            )
    elif file.format == "parquet":
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(_opened(file.path), page_checksum_verification=True) as parquet:
            _check_column(file, parquet.schema_arrow, field)
            skipped, groups = 0, list[int]()
            for i in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(i).num_rows
                if skipped + rows <= first and not groups:
                    skipped += rows
                else:
                    groups.append(i)
            yield pa.record_batch({field: pa.nulls(skipped, pa.large_string())})
            yield from parquet.iter_batches(_ROWS_AT_A_TIME, row_groups=groups, columns=[field])
    else:
        for batch in _arrow_batches(file.path):
            _check_column(file, batch.schema, field)
            for start in range(0, batch.num_rows, _ROWS_AT_A_TIME):
                yield batch.select([field]).slice(start, _ROWS_AT_A_TIME)


def _check_column(file: InputFile, schema: pa.Schema, field: str) -> None:
    if field not in schema.names:
        raise InputError(
            f"{file.path}: has no column {field!r}; it has {', '.join(schema.names)}: choose one with --text-field"
        )
    if schema.names.count(field) > 1:
        raise InputError(f"{file.path}: has {schema.names.count(field)} columns {field!r}; rename all but one")
    kind = schema.field(field).type
    while pa.types.is_dictionary(kind):
        kind = kind.value_type
    if kind not in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.null()):
        raise InputError(f"{file.path}: column {field!r} holds {kind}, not text; choose another with --text-field")
