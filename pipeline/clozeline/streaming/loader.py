"""`TokenLoader`: reads a stream ahead, on a thread or in worker processes, and counts what the trainer has been given."""

from __future__ import annotations

import threading
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from clozeline.errors import ClozelineError, ConfigError
from clozeline.streaming.buffers import Buffers
from clozeline.streaming.parcels import Parcels, as_it_is, parcel_size
from clozeline.streaming.tensors import widen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clozeline.streaming.parcels import Receiver
    from clozeline.streaming.stream import TokenStream, Turn
    from clozeline.streaming.tensors import Tensors


class TokenLoader:
    """Batches of a stream, read ahead: the same batches in the same order as the stream's own.

    Args:
        stream: with a batch_size.
        num_workers: processes that read and transform; 0 does it on a thread, which is the faster way unless the transform
            is slow: batches need not travel.
        prefetch: batches to read ahead; for each worker at least that many.
        persistent_workers: keep the processes from one epoch to the next.
        multiprocessing_context: "fork", "spawn" or "forkserver"; None for Python's default.
        pin_memory: give batches in page-locked memory, for asynchronous copies to a GPU; only where CUDA is.

    `state_dict` counts the batches that were given out, not those read ahead. Iterating again after a pass was broken off
    begins that pass again, and ends the iterator of the former one.
    """

    def __init__(
        self,
        stream: TokenStream,
        *,
        num_workers: int = 0,
        prefetch: int = 4,
        persistent_workers: bool = True,
        multiprocessing_context: str | None = None,
        pin_memory: bool = True,
    ) -> None:
        if stream.batch_size is None:
            raise ConfigError("the stream gives single rows: make it with a batch_size for TokenLoader")
        if num_workers < 0 or prefetch < 0:
            raise ConfigError(f"num_workers is {num_workers} and prefetch is {prefetch}: neither can be below 0")
        self.stream = stream
        self._prefetch = prefetch
        self._pin = pin_memory and torch.cuda.is_available()
        self._latest: Turn | None = None
        self._workers: DataLoader[Any] | None = None
        if num_workers:
            size = parcel_size(stream)
            ahead = max(2, -(-prefetch // size))  # one is filled while another waits
            self._parcels = Parcels(stream, size, num_workers, ahead + 2)
            self._workers = DataLoader(
                self._parcels,
                batch_size=None,
                collate_fn=as_it_is,
                num_workers=num_workers,
                prefetch_factor=ahead,
                persistent_workers=persistent_workers,
                multiprocessing_context=multiprocessing_context,
            )

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank."""
        return len(self.stream)

    @property
    def epoch(self) -> int:
        return self.stream.epoch

    def set_epoch(self, epoch: int) -> None:
        """See `TokenStream.set_epoch`."""
        self.stream.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """See `TokenStream.state_dict`: where the trainer is, with any number of workers."""
        return self.stream.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `TokenStream.load_state_dict`. The number of workers may differ."""
        self._latest = None
        self.stream.load_state_dict(state)

    def __iter__(self) -> Iterator[Tensors]:
        turn = self._latest = self.stream.begin()
        self.stream.count(turn, -1)
        if self._workers is not None:
            receiver = self._parcels.begin(turn)
            batches = self._from_workers(iter(self._workers), receiver)
        elif self._prefetch:
            batches = read_ahead(self._here(turn), self._prefetch)
        else:
            batches = self._here(turn)
        return self._counted(turn, batches)

    def _counted(self, turn: Turn, batches: Iterator[Tensors]) -> Iterator[Tensors]:
        for index, batch in enumerate(batches):
            if self._pin:  # on this thread: another would not know which device is ours, and take the first
                batch = {name: values.pin_memory() for name, values in batch.items()}
            self.stream.count(turn, index)
            yield batch
            if self._latest is not turn:
                raise ConfigError(
                    "another pass over this loader has begun, or a state was loaded: go on with a new iterator"
                )
        self.stream.end(turn)

    def _here(self, turn: Turn) -> Iterator[Tensors]:
        buffers = Buffers()
        dtype = self.stream.dtype
        for columns in self.stream.columns(turn, range(turn.plan.batches), buffers, dtype):
            yield widen(columns, dtype, buffers)

    def _from_workers(self, parcels: Iterator[Any], receiver: Receiver) -> Iterator[Tensors]:
        buffers = Buffers()
        for parcel in parcels:
            if isinstance(parcel, ClozelineError):
                raise parcel
            for columns in receiver.unwrap(parcel):
                yield widen(columns, self.stream.dtype, buffers)


def read_ahead(items: Iterator[Tensors], depth: int) -> Iterator[Tensors]:
    """The same items, up to `depth` of them made ahead on a thread; the thread ends when the iterator does or is closed."""
    ready: Queue[tuple[Tensors | None, BaseException | None]] = Queue(depth)
    closed = threading.Event()

    def fill() -> None:
        try:
            for item in items:
                ready.put((item, None))
                if closed.is_set():
                    return
            ready.put((None, None))
        except BaseException as error:
            ready.put((None, error))

    thread = threading.Thread(target=fill, name="clozeline-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
            del item  # the memory may be used again for the next one
    finally:
        closed.set()
        while thread.is_alive():
            try:
                ready.get_nowait()
            except Empty:
                thread.join(0.01)
