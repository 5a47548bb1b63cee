"""What a stream draws from: a data set in an order, with a transform.

Shapes: B rows per batch, L positions per row.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from clozeline.errors import DataError
from clozeline.streaming.merge import merge
from clozeline.streaming.order import RowOrder
from clozeline.streaming.rows import Identity, TokenRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from clozeline.store.manifest import Metadata
    from clozeline.streaming.buffers import Buffers
    from clozeline.streaming.lengths import LengthOrder

MODEL_COLUMNS = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "labels",
    "next_sentence_label",
    "sentence_order_label",
)
LOCATE_ROWS = 16_384  # positions located at once
_ROWS_PER_SHARD = 128  # gather so many from each shard touched, on average,
_TOGETHER_TOKENS = 2**21  # but no more tokens than these at once


class Transform(Protocol):
    """Changes batches after they are read, such as `Masking`.

    It may have an attribute `columns`, names of further columns that it needs, and a method `identity()`, JSON of what its
    result depends on: a checkpoint is not resumed with another.
    """

    def __call__(
        self,
        batch: dict[str, NDArray[Any]],
        *,
        shards: NDArray[np.int64],
        rows: NDArray[np.int64],
        epoch: int,
        meta: Metadata,
    ) -> dict[str, NDArray[Any]]: ...


class Batch(NamedTuple):
    """Rows with their identity; columns are (B, L) or (B,) in the stored integer widths."""

    at: Identity
    columns: dict[str, NDArray[Any]]


def transform_identity(transform: Transform | None) -> str:
    """What a transform's result depends on, as one string."""
    if transform is None:
        return "none"
    identity = getattr(transform, "identity", None)
    if callable(identity):
        return json.dumps(identity(), sort_keys=True)
    kind = transform if hasattr(transform, "__qualname__") else type(transform)
    return f"{kind.__module__}.{kind.__qualname__}"


class Source:
    """A data set in an order, with a transform.

    Args:
        columns: further columns to give beside those that models take.
        full_mask: give `attention_mask` also for batches without padding.
    """

    def __init__(
        self,
        rows: TokenRows,
        order: RowOrder | LengthOrder,
        transform: Transform | None = None,
        *,
        columns: tuple[str, ...] = (),
        full_mask: bool = True,
    ) -> None:
        self.rows, self.order, self.transform = rows, order, transform
        self._extra, self._full_mask = columns, full_mask
        self._names: list[str] | None = None
        self._inner: set[str] = set()

    @property
    def count(self) -> int:
        return self.order.count

    @property
    def metadata(self) -> Metadata:
        return self.rows.metadata

    @property
    def has_labels(self) -> bool:
        """Whether its batches have labels, as far as can be told without reading one."""
        return self.rows.metadata.stage == "masking" or self.transform is not None

    def describe(self) -> dict[str, Any]:
        """What its batches depend on, as flat JSON."""
        shuffle: str | None = self.order.shuffle
        if isinstance(self.order, RowOrder) and shuffle == "blocks":
            shuffle = f"blocks of {self.order.block_rows} rows, {self.order.window_blocks} a window"
        return {
            "data": self.rows.data.manifest.sha256,
            "copy": self.rows.copy,
            "shuffle": shuffle,
            "seed": self.order.seed,
            "transform": transform_identity(self.transform),
        }

    def names(self) -> list[str]:
        """Columns to read; `attention_mask` is made from `num_tokens` where it can be.

        Raises:
            DataError: one that is asked for is not there.
        """
        if self._names is None:
            there = self.rows.columns()
            needed = {*getattr(self.transform, "columns", ())}
            given = {*MODEL_COLUMNS, *self._extra}
            for name in sorted({*self._extra, *needed}):
                if there and name not in there:
                    raise DataError(f"{self.rows.data.location}: has no column {name!r}; there are {', '.join(there)}")
            if "attention_mask" in there:
                needed.add("num_tokens")
            self._inner = needed - given
            self._names = [name for name in there if name in given | needed]
        return self._names

    def _columns(
        self, at: Identity, buffers: Buffers, wide: np.dtype[Any] | None, *, full_mask: bool
    ) -> dict[str, NDArray[Any]]:
        names = self.names()
        if "attention_mask" not in names:
            return self.rows.take(at, names, buffers, wide)
        columns = self.rows.take(at, [n for n in names if n != "attention_mask"], buffers, wide)
        shape = columns["input_ids"].shape
        if (columns["num_tokens"] < shape[1]).any():
            columns.update(self.rows.take(at, ["attention_mask"], buffers, wide))
        elif full_mask:  # no padding: writing ones is cheaper than reading them
            columns["attention_mask"] = buffers.empty(shape, wide or np.dtype(np.uint8))
            columns["attention_mask"].fill(1)
        return columns

    def _finish(self, at: Identity, columns: dict[str, NDArray[Any]], epoch: int) -> dict[str, NDArray[Any]]:
        if self.transform is not None:
            columns = self.transform(columns, shards=at.shard, rows=at.row, epoch=epoch, meta=self.rows.metadata)
        return {name: values for name, values in columns.items() if name not in self._inner}

    def locate(self, epoch: int, positions: NDArray[np.int64]) -> Identity:
        """Where the rows at positions of an epoch stand."""
        return self.rows.identify(self.order.rows(epoch, positions), epoch)

    def read(
        self, at: Identity, epoch: int, buffers: Buffers, wide: np.dtype[Any] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Rows, transformed, in the stored integer widths or wider; rows of several lengths filled up to the longest of them."""
        if self.rows.several_lengths:
            lengths = self.rows.lengths(at)
            places = [np.flatnonzero(lengths == n) for n in np.unique(lengths)]
            if len(places) > 1:
                parts = [(p, self._transformed(_rows(at, p), epoch, buffers, None, full_mask=True)) for p in places]
                assert self.metadata.tokenizer is not None
                return merge(parts, len(lengths), self.metadata.tokenizer.pad_id, buffers, wide)
        return self._transformed(at, epoch, buffers, wide, full_mask=self._full_mask)

    def _transformed(
        self, at: Identity, epoch: int, buffers: Buffers, wide: np.dtype[Any] | None, *, full_mask: bool
    ) -> dict[str, NDArray[Any]]:
        plain = self.transform is None
        return self._finish(at, self._columns(at, buffers, wide if plain else None, full_mask=full_mask), epoch)

    def batches(
        self,
        epoch: int,
        positions: Iterator[NDArray[np.int64]],
        buffers: Buffers,
        wide: np.dtype[Any] | None = None,
    ) -> Iterator[Batch]:
        """A batch for each array of positions of an epoch.

        Many batches are located at once, and several are read at once where there are many shards, so that the cost of
        touching a shard is shared; the first few are not, so that they come soon.

        Args:
            buffers: where the batches are put.
            wide: a dtype that integers may come in where that saves a copy.
        """
        ahead = 1
        while block := list(islice(positions, ahead)):
            at = self.locate(epoch, np.concatenate(block))
            self.rows.prefetch(at)
            size = max(1, len(block[0]))
            scattered = self.order.shuffle == "global"
            at_once = min(_ROWS_PER_SHARD * self.rows.shards, _TOGETHER_TOKENS // (self.metadata.row_length or 1))
            together = max(1, at_once // size) if scattered else 1
            for i in range(0, len(block), together):
                yield from self._group(epoch, _part(at, i * size, (i + together) * size), size, buffers, wide)
            ahead = min(2 * ahead, max(1, LOCATE_ROWS // size))

    def _group(
        self, epoch: int, at: Identity, size: int, buffers: Buffers, wide: np.dtype[Any] | None
    ) -> Iterator[Batch]:
        """Batches of `size` rows that are read together."""
        count = len(at.row)
        if count <= size or self.rows.several_lengths:
            for first in range(0, count, size):
                part = _part(at, first, first + size)
                yield Batch(part, self.read(part, epoch, buffers, wide))
            return
        columns = self._columns(at, buffers, None, full_mask=self._full_mask)
        for first in range(0, count, size):
            part = _part(at, first, first + size)
            mine = {name: values[first : first + size] for name, values in columns.items()}
            yield Batch(part, self._finish(part, mine, epoch))


def _rows(at: Identity, which: NDArray[np.int64]) -> Identity:
    return Identity(*(values[which] for values in at))


def _part(at: Identity, first: int, last: int) -> Identity:
    return Identity(*(values[first:last] for values in at))
