"""Several transforms as one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from clozeline.streaming.source import transform_identity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from clozeline.store.manifest import Metadata
    from clozeline.streaming.source import Transform


class Chain:
    """Applies transforms one after another: `Chain(Masking(seed=1), BlockDiagonalMask())`.

    Attributes:
        transforms: in the order of application.
        columns: further columns that they need.
        flat: whether the batches that come out have no rows.
    """

    def __init__(self, *transforms: Transform) -> None:
        self.transforms = transforms
        self.flat = any(getattr(t, "flat", False) for t in transforms)
        self.columns = tuple(dict.fromkeys(name for t in transforms for name in getattr(t, "columns", ())))

    def __call__(
        self,
        batch: dict[str, NDArray[Any]],
        *,
        shards: NDArray[np.int64],
        rows: NDArray[np.int64],
        epoch: int,
        meta: Metadata,
    ) -> dict[str, NDArray[Any]]:
        """The batch after all of them."""
        for transform in self.transforms:
            batch = transform(batch, shards=shards, rows=rows, epoch=epoch, meta=meta)
        return batch

    def identity(self) -> list[Any]:
        """What the result depends on, as JSON."""
        return [json.loads(t) if (t := transform_identity(each))[:1] in "{[" else t for each in self.transforms]
