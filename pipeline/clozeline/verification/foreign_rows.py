"""Rows in the columns of other tools, as `input_ids`, `labels` and `attention_mask`.

Shapes: R rows of L positions.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from clozeline.errors import DataError
from clozeline.mask_function import IGNORE

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from clozeline.store.manifest import TokenizerFacts

    Columns = dict[str, NDArray[Any]]

_BLOCK = 256  # rows
_SPARSE = {  # of Google's BERT, and of LDDL
    "positions": ("masked_lm_positions",),
    "ids": ("masked_lm_ids", "masked_lm_labels"),
}


def foreign_files(path: str | os.PathLike[str]) -> list[Path]:
    """The Arrow and Parquet files of a data set: one file, or all in a folder by name, without what `datasets` caches.

    Raises:
        DataError: there are none.
    """
    place = Path(path)
    if place.is_file():
        return [place]
    found = sorted(
        p for kind in ("arrow", "parquet") for p in place.rglob(f"*.{kind}") if not p.name.startswith("cache-")
    )
    if not found:
        raise DataError(f"{path}: no .arrow or .parquet files here; give a file or a folder of them")
    return found


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Record batches of at most `_BLOCK` rows."""
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            yield from pq.ParquetFile(path).iter_batches(batch_size=_BLOCK)
            return
        with pa.memory_map(str(path)) as source:
            try:
                reader: Any = pa.ipc.open_stream(source)
            except pa.ArrowInvalid:
                source.seek(0)
                file = pa.ipc.open_file(source)
                reader = (file.get_batch(i) for i in range(file.num_record_batches))
            for batch in reader:
                for first in range(0, batch.num_rows, _BLOCK):
                    yield batch.slice(first, _BLOCK)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as {path.suffix[1:]} ({error})") from error


def _ragged(batch: pa.RecordBatch, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Values of a list column, and how many each row has.

    Raises:
        DataError: it holds something other than lists of integers, or values are missing.
    """
    array = batch.column(name)
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise DataError(f"column {name} is of type {kind}, where lists of integers are needed")
    values = array.flatten()
    if array.null_count or values.null_count:
        raise DataError(f"column {name} has missing values")
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        raise DataError(f"column {name} holds text, where integers are needed")
    try:
        whole = values.cast(pa.int64())
    except pa.ArrowException as error:
        raise DataError(f"column {name} holds something other than integers ({error})") from error
    width = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    lengths = np.full(len(array), width) if width is not None else array.value_lengths().to_numpy()
    return whole.to_numpy(zero_copy_only=False), lengths.astype(np.int64)


def _dense(values: NDArray[np.int64], lengths: NDArray[np.int64], length: int, fill: int) -> NDArray[np.int64]:
    """Rows of any length as (R, length), filled up."""
    rows = np.full((len(lengths), length), fill, np.int64)
    rows[np.arange(length) < lengths[:, None]] = values
    return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignReader:
    """Turns record batches of other tools into `input_ids`, `labels` and `attention_mask`, (R, L) each.

    Attributes:
        row_length: L; shorter rows are filled up.
        vocabulary: token to id, for columns that hold tokens as text.
    """

    facts: TokenizerFacts
    row_length: int
    vocabulary: dict[str, int] | None = None

    def columns(self, batch: pa.RecordBatch) -> Columns:
        """The columns of a batch.

        Raises:
            DataError: a column that cannot be read, or columns that do not fit each other.
        """
        names = set(batch.schema.names)
        columns: Columns = {}
        if "input_ids" in names:
            values, lengths = _ragged(batch, "input_ids")
            ids = _dense(values, lengths, self.row_length, self.facts.pad_id)
        else:
            ids, lengths = self._from_text(batch)
        columns["input_ids"] = ids
        attention = next((n for n in ("attention_mask", "input_mask") if n in names), None)
        for name, source, fill in (
            ("labels", "labels", IGNORE),
            ("attention_mask", attention, 0),
            ("word_starts", "word_starts", 1),
        ):
            if source is not None and source in names:
                columns[name] = self._fitting(batch, source, lengths, fill)
        if "labels" not in names:
            columns["labels"] = self._from_positions(batch, ids)
        columns.setdefault("attention_mask", ids != self.facts.pad_id)
        return columns

    def _fitting(self, batch: pa.RecordBatch, name: str, lengths: NDArray[np.int64], fill: int) -> NDArray[np.int64]:
        """A column with a value for each id."""
        values, own = _ragged(batch, name)
        wrong = np.flatnonzero(own != lengths)
        if len(wrong):
            raise DataError(f"row {wrong[0]} of these has {lengths[wrong[0]]} ids and {own[wrong[0]]} values of {name}")
        return _dense(values, own, self.row_length, fill)

    def _from_text(self, batch: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """LDDL's columns `A` and `B`: tokens with blanks between them. Ids, and how many each row has."""
        rows = np.full((batch.num_rows, self.row_length), self.facts.pad_id, np.int64)
        lengths = np.zeros(batch.num_rows, np.int64)
        for i, (a, b) in enumerate(zip(batch.column("A").to_pylist(), batch.column("B").to_pylist(), strict=True)):
            row = [*self.facts.prefix_ids, *self._ids(a), self.facts.separator_id]
            if b:
                row += [*self._ids(b), self.facts.separator_id]
            rows[i, : len(row)] = row
            lengths[i] = len(row)
        return rows, lengths

    def _ids(self, tokens: str) -> list[int]:
        assert self.vocabulary is not None
        try:
            return [self.vocabulary[token] for token in tokens.split()]
        except KeyError as error:
            raise DataError(
                f"the token {error.args[0]!r} is not in this tokenizer's vocabulary; give the right one"
            ) from error

    def _from_positions(self, batch: pa.RecordBatch, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Labels from positions and original ids; entries of weight 0 fill up."""
        labels = np.full(ids.shape, IGNORE, np.int64)
        names = [next(name for name in same if name in batch.schema.names) for same in _SPARSE.values()]
        weighted = "masked_lm_weights" in batch.schema.names
        columns = [batch.column(name).to_pylist() for name in (*names, *(["masked_lm_weights"] if weighted else []))]
        for i, (at, what, *weights) in enumerate(zip(*columns, strict=True)):
            try:
                places = np.load(io.BytesIO(at), allow_pickle=False) if isinstance(at, bytes) else np.array(at)
                values = np.array(self._ids(what) if isinstance(what, str) else what, np.int64)
                places = places.astype(np.int64)
                if weights:
                    there = np.array(weights[0]) > 0
                    places, values = places[there], values[there]
                if places.shape != values.shape or (places < 0).any():
                    raise ValueError(f"{len(places)} positions, {len(values)} ids, none of them negative")
                labels[i, places] = values
            except (ValueError, TypeError, IndexError, OverflowError, EOFError) as error:
                raise DataError(f"row {i} of these: {names[0]} and {names[1]} do not fit the row ({error})") from error
        return labels


def measure(files: list[Path]) -> tuple[int, int]:
    """The longest row, and how many rows there are; checks the columns."""
    longest = rows = 0
    for file in files:
        for batch in read_batches(file):
            names = set(batch.schema.names)
            has_rows = "input_ids" in names or {"A", "B"} <= names
            has_labels = "labels" in names or (
                "masked_lm_positions" in names and any(name in names for name in _SPARSE["ids"])
            )
            if not has_rows or not has_labels:
                raise DataError(
                    f"{file}: has columns {', '.join(batch.schema.names)}; `input_ids` and `labels` are needed, or those of "
                    "Google's BERT or LDDL (docs/verify.md)"
                )
            rows += batch.num_rows
            if not batch.num_rows:
                continue
            try:
                longest = max(longest, _longest(batch))
            except DataError as error:
                raise DataError(f"{file}: {error}") from error
    if not longest:
        raise DataError(f"{files[0]}: has no rows" + (" with an id" if rows else ""))
    return longest, rows


def _longest(batch: pa.RecordBatch) -> int:
    if "input_ids" in batch.schema.names:
        return int(_ragged(batch, "input_ids")[1].max())
    for name in ("A", "B"):
        column = batch.column(name)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or column.null_count:
            raise DataError(f"column {name} must hold text in every row, tokens with blanks between them")
    both = zip(batch.column("A").to_pylist(), batch.column("B").to_pylist(), strict=True)
    return max(len(a.split()) + len(b.split()) + 3 for a, b in both)
