"""What a stream draws from: a data set in an order, with a transform.

Shapes: B rows per batch, L positions per row.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from clozeline.errors import DataError
from clozeline.streaming.rows import Identity, TokenRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from clozeline.store.manifest import Metadata
    from clozeline.streaming.order import RowOrder

MODEL_COLUMNS = ("input_ids", "attention_mask", "token_type_ids", "labels", "next_sentence_label")
_LOCATE_ROWS = 16_384  # positions located at once
_ROWS_PER_SHARD = 16  # gather at least so many from each shard touched, on average


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
    """

    def __init__(
        self, rows: TokenRows, order: RowOrder, transform: Transform | None = None, columns: tuple[str, ...] = ()
    ) -> None:
        self.rows, self.order, self.transform = rows, order, transform
        self._extra = columns
        self._names: list[str] | None = None
        self._inner: set[str] = set()

    @property
    def count(self) -> int:
        return self.rows.count

    @property
    def has_labels(self) -> bool:
        """Whether its batches have labels, as far as can be told without reading one."""
        return self.rows.metadata.stage == "masking" or self.transform is not None

    def describe(self) -> dict[str, Any]:
        """What its batches depend on, as flat JSON."""
        shuffle: str | None = self.order.shuffle
        if shuffle == "blocks":
            shuffle = f"blocks of {self.order.block_rows} rows, {self.order.window_blocks} a window"
        return {
            "data": self.rows.data.manifest.sha256,
            "copy": self.rows.copy,
            "shuffle": shuffle,
            "seed": self.order.seed,
            "transform": transform_identity(self.transform),
        }

    def names(self) -> list[str]:
        """Columns to read.

        Raises:
            DataError: one that is asked for is not there.
        """
        if self._names is None:
            there = self.rows.columns()
            needed = tuple(getattr(self.transform, "columns", ()))
            for name in (*self._extra, *needed):
                if there and name not in there:
                    raise DataError(f"{self.rows.data.location}: has no column {name!r}; there are {', '.join(there)}")
            given = {*MODEL_COLUMNS, *self._extra}
            self._inner = {*needed} - given
            self._names = [name for name in there if name in given or name in needed]
        return self._names

    def finish(self, at: Identity, columns: dict[str, NDArray[Any]], epoch: int) -> dict[str, NDArray[Any]]:
        """The transform's turn."""
        if self.transform is not None:
            columns = self.transform(columns, shards=at.shard, rows=at.row, epoch=epoch, meta=self.rows.metadata)
        return {name: values for name, values in columns.items() if name not in self._inner}

    def batches(self, epoch: int, positions: Iterator[NDArray[np.int64]]) -> Iterator[Batch]:
        """A batch for each array of positions of an epoch.

        Several batches are located and read at once where there are many shards, so that the cost of touching a shard is
        shared; the first few are not, so that they come soon.
        """
        names = self.names()
        ahead = 1
        while block := list(islice(positions, ahead)):
            numbers = self.order.rows(epoch, np.concatenate(block))
            at = self.rows.identify(numbers, epoch)
            sizes = [len(p) for p in block]
            together = max(1, _ROWS_PER_SHARD * self.rows.shards // max(1, sizes[0]))
            first = 0
            for i in range(0, len(block), together):
                last = first + sum(sizes[i : i + together])
                columns = self.rows.take(Identity(*(a[first:last] for a in at)), names)
                base = first
                for size in sizes[i : i + together]:
                    here = slice(first - base, first - base + size)
                    part = Identity(*(a[first : first + size] for a in at))
                    yield Batch(part, self.finish(part, {n: v[here] for n, v in columns.items()}, epoch))
                    first += size
            ahead = min(2 * ahead, max(1, _LOCATE_ROWS // max(1, sizes[0])))
