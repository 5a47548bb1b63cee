"""Batches on their way from worker processes: several in one piece of shared memory, in the stored integer widths.

Sending int64 batches between processes costs more than making them, and each piece of shared memory costs about as much as a
batch; so a parcel holds some 256 KiB or more, and the main process widens what comes out.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from clozeline.errors import ClozelineError
from clozeline.streaming.buffers import Buffers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from clozeline.streaming.stream import TokenStream

PARCEL_BYTES = 2**18  # of input_ids
_ALIGNMENT = 64


class Column(NamedTuple):
    """A column within a parcel; `start` is None for an attention mask of nothing but ones, which is not sent."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int | None


class Parcel(NamedTuple):
    memory: torch.Tensor  # uint8 (bytes,), shared
    batches: list[list[Column]]


def wrap(batches: list[dict[str, NDArray[Any]]]) -> Parcel:
    """Copies batches into shared memory."""
    layout, total = [], 0
    for columns in batches:
        places = []
        for name, values in columns.items():
            constant = name == "attention_mask" and bool(values.all())
            places.append(Column(name, values.dtype.str, values.shape, None if constant else total))
            if not constant:
                total += -(-values.nbytes // _ALIGNMENT) * _ALIGNMENT
        layout.append(places)
    storage = torch.UntypedStorage._new_shared(total)  # type: ignore[no-untyped-call]
    memory = torch.empty(0, dtype=torch.uint8).set_(storage)
    array = memory.numpy()
    for columns, places in zip(batches, layout, strict=True):
        for column in places:
            if column.start is not None:
                _view(array, column)[...] = columns[column.name]
    return Parcel(memory, layout)


def unwrap(parcel: Parcel) -> Iterator[dict[str, NDArray[Any]]]:
    """The batches of a parcel, as views of its memory."""
    array = parcel.memory.numpy()
    for places in parcel.batches:
        yield {
            column.name: np.ones(column.shape, column.dtype) if column.start is None else _view(array, column)
            for column in places
        }


def _view(array: NDArray[np.uint8], column: Column) -> NDArray[Any]:
    return np.ndarray(column.shape, column.dtype, array, column.start or 0)


class Parcels(IterableDataset):  # type: ignore[type-arg]
    """A stream as its worker processes give it out: worker w makes parcels w, w + W, w + 2 W, ... of `size` batches each."""

    def __init__(self, stream: TokenStream, size: int) -> None:
        self._stream, self._size = stream, size

    def __iter__(self) -> Iterator[Parcel | ClozelineError]:
        info = get_worker_info()
        assert info is not None
        turn = self._stream.begin()
        firsts = range(info.id * self._size, turn.plan.batches, info.num_workers * self._size)
        ends = ((first, min(first + self._size, turn.plan.batches)) for first in firsts)
        indices = [range(*end) for end in ends]
        try:
            batches = self._stream.columns(turn, (i for part in indices for i in part), Buffers())
            for part in indices:
                yield wrap(list(islice(batches, len(part))))
        except ClozelineError as error:
            yield error  # the main process raises it as it is, without a worker's traceback


def parcel_size(stream: TokenStream) -> int:
    """Batches in a parcel."""
    length = stream.metadata.row_length or 1
    return max(1, PARCEL_BYTES // (2 * length * (stream.batch_size or 1)))
