"""Puts rows that were read apart together into one batch.

Shapes: B rows per batch, L positions per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import DataError
from clozeline.mask_function import IGNORE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.streaming.buffers import Buffers

    Columns = dict[str, NDArray[Any]]


def merge(
    parts: list[tuple[NDArray[np.int64], Columns]],
    count: int,
    pad_id: int,
    buffers: Buffers,
    wide: np.dtype[Any] | None = None,
) -> Columns:
    """One batch of parts.

    Args:
        parts: for each its places in the batch and its columns, (rows of the part, L) or (rows of the part,).
        count: B.
        pad_id: what shorter rows are filled up with; labels with -100, other columns with 0.
        wide: dtype of the result; None for the narrowest that holds all parts.

    Raises:
        DataError: the parts have different columns.
    """
    first = parts[0][1]
    for _, columns in parts:
        if columns.keys() != first.keys():
            raise DataError(f"rows with different columns in one batch: {', '.join(first)}, and {', '.join(columns)}")
    merged: Columns = {}
    fill = {"input_ids": pad_id, "labels": IGNORE}
    for name in first:
        values = [columns[name] for _, columns in parts]
        shape = tuple(max(sizes) for sizes in zip(*(v.shape[1:] for v in values), strict=True))
        out = buffers.empty((count, *shape), wide or np.result_type(*values))
        for (places, _), part in zip(parts, values, strict=True):
            if part.shape[1:] == shape:
                out[places] = part
            else:
                out[places, : part.shape[1]] = part
                out[places, part.shape[1] :] = fill.get(name, 0)
        merged[name] = out
    return merged
