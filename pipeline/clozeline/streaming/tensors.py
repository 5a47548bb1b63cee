"""Batches as tensors in the widths that models take.

Shapes: B rows per batch, L positions per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.streaming.buffers import Buffers

Tensors = dict[str, torch.Tensor]
_AS_THEY_ARE = ("cu_seqlens", "max_seqlen")  # attention kernels take int32


def widen(columns: dict[str, NDArray[Any]], dtype: np.dtype[Any], buffers: Buffers) -> Tensors:
    """Integer columns as tensors of a dtype; others keep theirs. A tensor holds on to its own rows only."""
    return {
        name: torch.from_numpy(np.array(values) if name in _AS_THEY_ARE else _as(values, dtype, buffers))
        for name, values in columns.items()
    }


def _as(values: NDArray[Any], dtype: np.dtype[Any], buffers: Buffers) -> NDArray[Any]:
    if values.dtype.kind not in "iu":
        return np.array(values)
    if values.dtype == dtype and values.base is None:
        return values
    wide = buffers.empty(values.shape, dtype)
    np.copyto(wide, values)
    return wide
