"""`TokenDataset`: a data set by row number, for trainers that bring their own sampler.

Shapes: B rows, L positions per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch.utils.data import Dataset

from clozeline.errors import ConfigError
from clozeline.streaming.buffers import Buffers
from clozeline.streaming.cursor import Cursor
from clozeline.streaming.order import RowOrder
from clozeline.streaming.rows import TokenRows
from clozeline.streaming.source import Source
from clozeline.streaming.stream import StreamOptions, with_identity
from clozeline.streaming.tensors import widen

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from clozeline.streaming.rows import Copy
    from clozeline.streaming.source import Transform
    from clozeline.streaming.tensors import Tensors


class TokenDataset(Dataset):  # type: ignore[type-arg]
    """The rows of a packed or masked data set, map style: row n is `dataset[n]`, a dict of tensors (L,) or ().

    The sampler decides on order, ranks and resumption; rows, and their masks in each epoch, are those of `TokenStream`.

    Args:
        path, transform, copy: see `TokenStream`.
        epoch: of the masks, and of copy="epoch".

    Raises:
        DataError: no finished token data set, or a damaged one.

    `set_epoch` has to be called before each epoch; it reaches worker processes that live on. See `docs/stream.md` for which
    trainers call it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        transform: Transform | None = None,
        epoch: int = 0,
        copy: Copy = "all",
        options: StreamOptions | None = None,
    ) -> None:
        self._options = options or StreamOptions()
        rows = TokenRows(path, copy, self._options.cache, digests=self._options.check == "digests")
        self._source = Source(
            rows,
            RowOrder(count=rows.count, seed=0, shuffle=None),
            transform,
            columns=self._options.columns,
            full_mask=self._options.full_attention_mask,
        )
        self._wide = np.dtype(self._options.dtype)
        self._cursor = Cursor()
        self.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        return self._cursor.begin()[0]

    def set_epoch(self, epoch: int) -> None:
        if epoch < 0:
            raise ConfigError(f"epoch is {epoch}: epochs count from 0")
        self._cursor.seek(epoch, 0)

    def __len__(self) -> int:
        return self._source.count

    def batch(self, rows: Sequence[int]) -> Tensors:
        """Rows by number, in the order given: tensors (B, L) or (B,)."""
        numbers = np.asarray(rows, np.int64)
        count = len(self)
        if len(numbers) and not (numbers.min() >= -count and numbers.max() < count):
            raise IndexError(f"rows count from 0 to {count - 1}; asked for {numbers.min()} to {numbers.max()}")
        epoch, buffers = self.epoch, Buffers()
        at = self._source.locate(epoch, np.where(numbers < 0, numbers + count, numbers))
        columns = self._source.read(at, epoch, buffers)
        return widen(with_identity(columns, at) if self._options.identity else columns, self._wide, buffers)

    def __getitem__(self, row: int) -> Tensors:
        return {name: values[0] for name, values in self.batch([row]).items()}

    def __getitems__(self, rows: Sequence[int]) -> list[Tensors]:
        """What a `DataLoader` asks for a whole batch: read at once, given as single rows for its `collate_fn`."""
        batch = self.batch(rows)
        return [{name: values[i] for name, values in batch.items()} for i in range(len(rows))]
