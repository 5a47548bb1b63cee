"""Numpy arrays and byte strings as Arrow arrays, by their buffers.

`pyarrow.array` would do, but imports pandas wherever that is installed, to ask whether it is given a series: 0.2 s a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def from_numpy(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """(N,) as a column of numbers, (N, L) as one of lists of L; not copied where it is contiguous.

    Raises:
        TypeError: the dtype is not exactly the column's; an id is never wrapped silently.
    """
    if pa.types.is_fixed_size_list(kind):
        flat = np.ascontiguousarray(values).reshape(-1)
        return pa.FixedSizeListArray.from_arrays(from_numpy(flat, kind.value_type), type=kind)
    found = pa.from_numpy_dtype(values.dtype)
    if found != kind:
        raise TypeError(f"{found} values for a column of {kind}")
    values = np.ascontiguousarray(values)
    buffer = np.packbits(values, bitorder="little") if values.dtype == bool else values
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(buffer)])


def to_numpy(array: pa.Array) -> NDArray[Any]:
    """The values of a column of numbers without missing ones: a view.

    Raises:
        ValueError: truth values, which Arrow keeps as bits and nothing can be a view of.
    """
    if pa.types.is_boolean(array.type):
        raise ValueError("bits cannot be viewed as an array")
    dtype = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def from_bytes(items: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """Byte strings as binary or string (UTF-8) values, large or not."""
    wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(item) for item in items], out=offsets[1:])
    if not wide and offsets[-1] >= 2**31:
        raise OverflowError(f"{offsets[-1]:,} bytes for one array of {kind}")
    joined = b"".join(items)
    buffers = [None, pa.py_buffer(offsets if wide else offsets.astype(np.int32)), pa.py_buffer(joined)]
    return pa.Array.from_buffers(kind, len(items), buffers)
