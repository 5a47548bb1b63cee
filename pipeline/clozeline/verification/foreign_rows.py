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


def _ragged(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Values of a list column, and how many each row has."""
    if pa.types.is_fixed_size_list(array.type):
        width = array.type.list_size
        return array.flatten().to_numpy(zero_copy_only=False), np.full(len(array), width)
    lengths = array.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return array.flatten().to_numpy(zero_copy_only=False), lengths


def _dense(array: pa.Array, length: int, fill: int) -> NDArray[np.int64]:
    """A list column as (R, length), filled up."""
    values, lengths = _ragged(array)
    rows = np.full((len(array), length), fill, np.int64)
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
        names = set(batch.schema.names)
        if "input_ids" in names:
            ids = _dense(batch.column("input_ids"), self.row_length, self.facts.pad_id)
        else:
            ids = self._from_text(batch)
        attention = np.zeros(ids.shape, np.uint8)
        given = next((n for n in ("attention_mask", "input_mask") if n in names), None)
        if given is not None:
            attention = _dense(batch.column(given), self.row_length, 0).astype(np.uint8)
        else:
            attention[ids != self.facts.pad_id] = 1
        given_labels = "labels" in names
        labels = (
            _dense(batch.column("labels"), self.row_length, IGNORE)
            if given_labels
            else self._from_positions(batch, ids)
        )
        columns: Columns = {"input_ids": ids, "labels": labels, "attention_mask": attention}
        if "word_starts" in names:
            columns["word_starts"] = _dense(batch.column("word_starts"), self.row_length, 1)
        return columns

    def _from_text(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """LDDL's columns `A` and `B`: tokens with blanks between them."""
        rows = np.full((batch.num_rows, self.row_length), self.facts.pad_id, np.int64)
        for i, (a, b) in enumerate(zip(batch.column("A").to_pylist(), batch.column("B").to_pylist(), strict=True)):
            row = [*self.facts.prefix_ids, *self._ids(a), self.facts.separator_id]
            if b:
                row += [*self._ids(b), self.facts.separator_id]
            rows[i, : len(row)] = row
        return rows

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
        ids_name = next(name for name in _SPARSE["ids"] if name in batch.schema.names)
        positions, originals = batch.column(_SPARSE["positions"][0]).to_pylist(), batch.column(ids_name).to_pylist()
        weights = batch.column("masked_lm_weights").to_pylist() if "masked_lm_weights" in batch.schema.names else None
        for i, (at, what) in enumerate(zip(positions, originals, strict=True)):
            places = np.load(io.BytesIO(at), allow_pickle=False) if isinstance(at, bytes) else np.array(at, np.int64)
            values = np.array(self._ids(what) if isinstance(what, str) else what, np.int64)
            if weights is not None:
                there = np.array(weights[i]) > 0
                places, values = places[there], values[there]
            labels[i, places.astype(np.int64)] = values
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
            if "input_ids" in names:
                longest = max(longest, int(_ragged(batch.column("input_ids"))[1].max()))
            else:
                both = zip(batch.column("A").to_pylist(), batch.column("B").to_pylist(), strict=True)
                longest = max(longest, *(len(a.split()) + len(b.split()) + 3 for a, b in both))
    if not rows:
        raise DataError(f"{files[0]}: has no rows")
    return longest, rows
