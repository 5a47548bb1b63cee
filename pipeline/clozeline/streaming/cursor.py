"""Where a stream stands, in memory that it shares with its worker processes.

The main process moves the cursor (`seek`), worker processes read it when a pass over the data begins and note when they have
ended one. Workers that live on for many epochs (persistent_workers) so learn of `set_epoch`, and the epoch advances by itself
when all of them have ended theirs.
"""

from __future__ import annotations

import torch

MAX_WORKERS = 1024
_EPOCH_BITS = 40
_EPOCHS = (1 << _EPOCH_BITS) - 1
_HEAD, _START, _HIDDEN, _SLOTS = 0, 1, 2, 3


class Cursor:
    """Cells of 64 bits: head (generation and epoch), start, and for each worker the epoch that it is to begin next.

    A move begins a generation; what workers noted in an older generation counts no more. Every cell has one writer.
    """

    def __init__(self) -> None:
        self._cells = torch.zeros(_SLOTS + MAX_WORKERS, dtype=torch.int64)
        self._cells.share_memory_()  # type: ignore[no-untyped-call]

    def __deepcopy__(self, memo: object) -> Cursor:
        twin = Cursor()
        twin._cells.copy_(self._cells)
        return twin

    def seek(self, epoch: int, start: int) -> None:
        """Moves to a row of an epoch; for the main process."""
        self._cells[_START] = start
        self._cells[_HIDDEN] = 0
        generation = (int(self._cells[_HEAD]) >> _EPOCH_BITS) + 1
        self._cells[_HEAD] = generation << _EPOCH_BITS | epoch

    def begin(self, workers: int = 1) -> tuple[int, int, int]:
        """(epoch, first row, generation) of the pass that begins now: the epoch that not all workers have ended."""
        head = int(self._cells[_HEAD])
        generation, base = head >> _EPOCH_BITS, head & _EPOCHS
        cells = self._cells[_SLOTS : _SLOTS + workers].tolist()
        noted = [cell & _EPOCHS for cell in cells if cell >> _EPOCH_BITS == generation]
        if len(noted) == workers:
            return min(noted), 0, generation
        return base, int(self._cells[_START]), generation

    def end(self, worker: int, next_epoch: int, generation: int) -> None:
        """Notes that a worker has ended its pass, and the epoch that is to follow."""
        self._cells[_SLOTS + worker] = generation << _EPOCH_BITS | next_epoch

    @property
    def hidden(self) -> bool:
        """Rows were handed out by worker processes since the last move: the main process does not know how many."""
        return bool(self._cells[_HIDDEN])

    def hide(self) -> None:
        self._cells[_HIDDEN] = 1
