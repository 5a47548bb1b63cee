"""Masked shards with sparse labels: the packed rows once for all copies, and for each copy what the mask changed.

Shapes: B rows asked for, L positions per row, M slots per row, N selected positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from clozeline.errors import DataError
from clozeline.mask_function import IGNORE
from clozeline.store.schema import label_dtype
from clozeline.store.shards import RESTORE, TokenShard

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.store.location import Location
    from clozeline.store.manifest import Metadata, ShardEntry

SPARSE_COLUMNS = ("num_selected", "positions", "masked_ids")


def to_slots(ids: NDArray[Any], labels: NDArray[Any], slots: int) -> dict[str, NDArray[Any]]:
    """The sparse columns of masked rows.

    Args:
        ids, labels: (B, L) after masking.
        slots: M, at least the most labels that a row has.

    Returns:
        num_selected uint16 (B,); positions uint16 (B, M), ascending, and masked_ids (B, M) of the dtype of `ids`, filled up with 0.
    """
    selected = labels != IGNORE
    count = selected.sum(axis=1)
    used = np.arange(slots) < count[:, None]
    positions, masked = np.zeros(used.shape, np.uint16), np.zeros(used.shape, ids.dtype)
    positions[used] = np.nonzero(selected)[1]
    masked[used] = ids[selected]
    return {"num_selected": count.astype(np.uint16), "positions": positions, "masked_ids": masked}


class SparseShard:
    """One masking of one packed shard, read like a `TokenShard` with dense `input_ids` and `labels`.

    Args:
        raw: the packed rows.
        sparse: what the mask changed.

    Raises:
        DataError: the two do not belong together.
    """

    def __init__(self, raw: TokenShard, sparse: TokenShard) -> None:
        self._raw, self._sparse = raw, sparse
        self.entry, self.path = sparse.entry, sparse.path
        self.metadata, self.schema_metadata = sparse.metadata, sparse.schema_metadata
        if raw.metadata.fingerprint != self.metadata.upstream or raw.schema_metadata.get("shard") != self.entry.shard:
            raise DataError(f"{raw.path}: not the rows that {self.path} masks; {RESTORE}")
        if (raw.entry.rows, raw.batch_rows) != (self.entry.rows, sparse.batch_rows):
            raise DataError(f"{raw.path}: {raw.entry.rows:,} rows, {self.path} masks {self.entry.rows:,}; {RESTORE}")
        missing = sorted({*SPARSE_COLUMNS} - {*sparse.columns()})
        if missing and self.entry.rows:
            raise DataError(f"{self.path}: has no column {', '.join(missing)}; {RESTORE}")
        if self.entry.rows and sparse.row_shape("positions") != sparse.row_shape("masked_ids"):
            raise DataError(f"{self.path}: positions and masked_ids have different numbers of slots; {RESTORE}")
        assert self.metadata.tokenizer is not None
        self._label_dtype: np.dtype[Any] = np.dtype(label_dtype(self.metadata.tokenizer.vocabulary_size))
        self.types = dict(raw.types)
        if "input_ids" in raw.types:
            length = raw.types["input_ids"].list_size
            self.types["labels"] = pa.list_(pa.from_numpy_dtype(self._label_dtype), length)

    def columns(self) -> list[str]:
        names = self._raw.columns()
        return [*names, "labels"] if names else []

    def dtype(self, name: str) -> np.dtype[Any]:
        return self._label_dtype if name == "labels" else self._raw.dtype(name)

    def row_shape(self, name: str) -> tuple[int, ...]:
        """(L,) for a column with a value for each position, () for one with a value for each row."""
        return self._raw.row_shape("input_ids" if name == "labels" else name)

    def take(self, name: str, rows: NDArray[np.int64], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Rows by number, in the order given: (B, L) or (B,)."""
        if out is None:
            out = np.empty((len(rows), *self.row_shape(name)), self.dtype(name))
        self.take_into({name: out}, rows, slice(None))
        return out

    def take_into(
        self, columns: dict[str, NDArray[Any]], rows: NDArray[np.int64], where: NDArray[np.int64] | slice
    ) -> None:
        """Copies rows by number to `where` in arrays that may be of wider integers; see `TokenShard.take_into`.

        Raises:
            DataError: a row names positions that it does not have.
        """
        if not len(rows):
            return
        self._raw.take_into({name: out for name, out in columns.items() if name != "labels"}, rows, where)
        ids, labels = columns.get("input_ids"), columns.get("labels")
        if ids is None and labels is None:
            return
        row, position, masked = self._selected({name: self._sparse.take(name, rows) for name in SPARSE_COLUMNS}, rows)
        place = np.arange(len(labels if ids is None else ids))[where][row]  # type: ignore[arg-type]
        if labels is not None:
            original = self._raw.take("input_ids", rows)[row, position] if ids is None else ids[place, position]
            labels[where] = IGNORE
            labels[place, position] = original
        if ids is not None:
            ids[place, position] = masked

    def _selected(
        self, sparse: dict[str, NDArray[Any]], rows: NDArray[np.int64] | range
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        """Of each selected position its row among `rows`, the position, and the id that stands there: (N,) each."""
        count, positions = sparse["num_selected"], sparse["positions"]
        used = np.arange(positions.shape[1]) < count[:, None]
        row, position = np.nonzero(used)[0], positions[used]
        length = self.row_shape("input_ids")[0]
        wrong = np.flatnonzero(count > positions.shape[1])
        if len(wrong):
            raise DataError(
                f"{self.path}, row {rows[int(wrong[0])]}: {count[wrong[0]]} positions are selected, a row has "
                f"{positions.shape[1]} slots; {RESTORE}"
            )
        wrong = np.flatnonzero(position >= length)
        if len(wrong):
            raise DataError(
                f"{self.path}, row {rows[int(row[wrong[0]])]}: position {position[wrong[0]]} is selected, a row has {length}; "
                f"{RESTORE}"
            )
        return row, position, sparse["masked_ids"][used]

    def batches(self, *names: str) -> Any:
        """All rows in order, a record batch at a time: dicts of (n, L) or (n,), views into the map where nothing is masked."""
        wanted = names or tuple(self.columns())
        masked = [name for name in wanted if name in ("input_ids", "labels")]
        first = 0
        for raw in self._raw.batches():
            count = len(raw["input_ids"])
            rows = np.arange(first, first + count)
            made = {name: np.empty((count, *self.row_shape(name)), self.dtype(name)) for name in masked}
            self.take_into(made, rows, slice(None))
            yield {name: made[name] if name in made else raw[name] for name in wanted}
            first += count

    def check(self) -> None:
        """Looks at every slot.

        Raises:
            DataError: positions are outside the row, not ascending, or what fills up a row is not 0.
        """
        first = 0
        for sparse in self._sparse.batches(*SPARSE_COLUMNS):
            count, positions = sparse["num_selected"], sparse["positions"]
            rows = range(first, first + len(count))
            self._selected(sparse, rows)
            used = np.arange(positions.shape[1]) < count[:, None]
            falling = (positions[:, 1:] <= positions[:, :-1]) & used[:, 1:]
            filled = ((positions != 0) | (sparse["masked_ids"] != 0)) & ~used
            for bad, what in ((falling, "positions do not ascend"), (filled, "a slot that is not used is not 0")):
                if bad.any():
                    raise DataError(f"{self.path}, row {rows[int(np.argwhere(bad)[0][0])]}: {what}; {RESTORE}")
            first += len(count)


Shard = TokenShard | SparseShard


def open_shard(location: Location, entry: ShardEntry, raw: ShardEntry | None, metadata: Metadata) -> Shard:
    """A shard of a data set, its labels dense whichever way they are stored.

    Args:
        raw: the packed rows that the manifest names for it.
        metadata: of the data set.

    Raises:
        DataError: missing, cut short, or not what the manifest says.
    """
    shard = TokenShard(location, entry)
    if metadata.config.get("labels") != "sparse":
        return shard
    if raw is None:
        raise DataError(f"{shard.path}: the manifest names no packed rows for it; {RESTORE}")
    return SparseShard(TokenShard(location, raw), shard)
