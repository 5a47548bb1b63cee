"""Batches as tensors in the widths that models take.

Shapes: B rows per batch, L positions per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.streaming.rows import Identity

Tensors = dict[str, torch.Tensor]


def widen(columns: dict[str, NDArray[Any]], dtype: str) -> Tensors:
    """Integer columns as tensors of `dtype` ("int64" or "int32"), freshly allocated; others keep theirs."""
    wide = np.dtype(dtype)
    return {
        name: torch.from_numpy(values.astype(wide) if values.dtype.kind in "iu" else np.ascontiguousarray(values))
        for name, values in columns.items()
    }


def identity_tensors(at: Identity, padding: NDArray[np.bool_]) -> Tensors:
    """`shard`, `row` and `global_row`, int64 (B,) each, -1 for padding."""
    named = {"shard": at.shard, "row": at.row, "global_row": at.number}
    return {name: torch.from_numpy(np.where(padding, -1, values)) for name, values in named.items()}
