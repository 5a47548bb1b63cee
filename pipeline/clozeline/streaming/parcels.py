"""Batches on their way from worker processes: several in one piece of shared memory, in the stored integer widths.

Sending int64 batches between processes costs more than making them, so the main process widens what comes out. Making and
sending a piece of shared memory costs about as much again; so a parcel holds half a megabyte or more, and each worker has a few
pieces that it fills anew once the main process has read them.
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

    from clozeline.streaming.stream import TokenStream, Turn

PARCEL_BYTES = 2**19  # of input_ids,
_MOST_BATCHES = 8  # but no more batches than these: a transform may have made them larger
_ALIGNMENT = 64


class Column(NamedTuple):
    """A column within a parcel; `start` is None for an attention mask of nothing but ones, which is not sent."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int | None


class Parcel(NamedTuple):
    """Batches in shared memory.

    Attributes:
        worker, piece: whose piece of memory it is, and which; None for one that is used once.
        memory: uint8 (bytes,), shared; None for a piece that has been sent before.
    """

    worker: int
    piece: int | None
    memory: torch.Tensor | None
    batches: list[list[Column]]


class Sender:
    """Puts batches into parcels, in a worker process.

    Args:
        in_use: uint8 (P,), shared with the main process: whether it has yet to read a piece.
    """

    def __init__(self, worker: int, in_use: NDArray[np.uint8]) -> None:
        self._worker, self._in_use = worker, in_use
        self._pieces: list[NDArray[np.uint8]] = []
        in_use[:] = 0

    def wrap(self, batches: list[dict[str, NDArray[Any]]]) -> Parcel:
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
        piece, memory, array = self._memory(total)
        for columns, places in zip(batches, layout, strict=True):
            for column in places:
                if column.start is not None:
                    _view(array, column)[...] = columns[column.name]
        return Parcel(self._worker, piece, memory, layout)

    def _memory(self, size: int) -> tuple[int | None, torch.Tensor | None, NDArray[np.uint8]]:
        """A piece that nobody reads; its tensor where the main process does not have it yet."""
        free = [i for i, used in enumerate(self._in_use.tolist()) if not used]
        for piece in free:
            if piece < len(self._pieces) and len(self._pieces[piece]) >= size:
                self._in_use[piece] = 1
                return piece, None, self._pieces[piece]
        storage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
        memory = torch.empty(0, dtype=torch.uint8).set_(storage)
        if not free:
            return None, memory, memory.numpy()
        piece = min(
            free[-1], len(self._pieces)
        )  # a new one while there are fewer than allowed, else one that is too small
        self._pieces[piece : piece + 1] = [memory.numpy()]
        self._in_use[piece] = 1
        return piece, memory, memory.numpy()


class Receiver:
    """Takes batches out of parcels, in the main process.

    Args:
        in_use: uint8 (W, P), shared with the workers.
    """

    def __init__(self, in_use: NDArray[np.uint8]) -> None:
        self._in_use = in_use
        self._pieces: dict[tuple[int, int], NDArray[np.uint8]] = {}

    def unwrap(self, parcel: Parcel) -> Iterator[dict[str, NDArray[Any]]]:
        """The batches of a parcel, as views of its memory, which is filled anew once the last of them has been asked for."""
        if parcel.piece is None:
            assert parcel.memory is not None
            yield from _views(parcel.memory.numpy(), parcel.batches)
            return
        at = parcel.worker, parcel.piece
        if parcel.memory is not None:
            self._pieces[at] = parcel.memory.numpy()
        yield from _views(self._pieces[at], parcel.batches)
        self._in_use[at] = 0


def _views(array: NDArray[np.uint8], batches: list[list[Column]]) -> Iterator[dict[str, NDArray[Any]]]:
    for places in batches:
        yield {
            column.name: np.ones(column.shape, column.dtype) if column.start is None else _view(array, column)
            for column in places
        }


def _view(array: NDArray[np.uint8], column: Column) -> NDArray[Any]:
    return np.ndarray(column.shape, column.dtype, array, column.start or 0)


class Parcels(IterableDataset):  # type: ignore[type-arg]
    """A stream as its worker processes give it out: worker w makes parcels w, w + W, w + 2 W, ... of `size` batches each."""

    def __init__(self, stream: TokenStream, size: int, workers: int, pieces: int) -> None:
        self._stream, self._size = stream, size
        self._in_use = torch.zeros((workers, pieces), dtype=torch.uint8)
        self._in_use.share_memory_()  # type: ignore[no-untyped-call]
        self._pass = torch.zeros(2, dtype=torch.int64)  # epoch, start
        self._pass.share_memory_()  # type: ignore[no-untyped-call]

    def begin(self, turn: Turn) -> Receiver:
        """Tells the workers which pass begins. They must not ask the stream: when a slow one has started, the main process may
        have given out the whole of a short pass, and the stream stands in the next epoch."""
        self._pass[0], self._pass[1] = turn.epoch, turn.plan.start
        return Receiver(self._in_use.numpy())

    def __iter__(self) -> Iterator[Parcel | ClozelineError]:
        info = get_worker_info()
        assert info is not None
        turn = self._stream.join(*self._pass.tolist())
        firsts = range(info.id * self._size, turn.plan.batches, info.num_workers * self._size)
        ends = ((first, min(first + self._size, turn.plan.batches)) for first in firsts)
        indices = [range(*end) for end in ends]
        try:
            batches = self._stream.columns(turn, (i for part in indices for i in part), Buffers())
            sender = Sender(info.id, self._in_use.numpy()[info.id])
            for part in indices:
                yield sender.wrap(list(islice(batches, len(part))))
        except ClozelineError as error:
            yield error  # the main process raises it as it is, without a worker's traceback


def as_it_is(parcel: Any) -> Any:
    """What a `DataLoader` is to make of a parcel."""
    return parcel


def parcel_size(stream: TokenStream) -> int:
    """Batches in a parcel."""
    length = stream.metadata.row_length or 1
    return max(1, min(_MOST_BATCHES, PARCEL_BYTES // (2 * length * (stream.batch_size or 1))))
