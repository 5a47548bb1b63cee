"""What a long evaluation keeps, so that a stopped one goes on where it was."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import DestinationError

if TYPE_CHECKING:
    import os

    from clozeline.evaluation.totals import Totals


class Checkpoint:
    """A file with the sums so far, replaced as a whole every so often.

    Args:
        path: of the file; with several processes each has its own, `PATH.1-of-3`.
        identity: JSON of everything that the sums depend on; another run's file is refused.
        resume: go on from what is there; without it an existing file is refused.
        seconds: between two writes.

    Raises:
        DestinationError: there is a file already, or one of other work.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        identity: dict[str, Any],
        *,
        resume: bool,
        seconds: float = 60.0,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.path = Path(path) if processes == 1 else Path(f"{path}.{rank + 1}-of-{processes}")
        self._identity = json.dumps(identity, sort_keys=True)
        self._seconds, self._last = seconds, time.monotonic()
        self.batches = 0
        self._state: dict[str, Any] | None = None
        if not self.path.exists():
            return
        if not resume:
            raise DestinationError(f"{self.path}: holds an unfinished evaluation; go on with --resume, or remove it")
        try:
            with np.load(self.path, allow_pickle=False) as file:
                self._state = dict(file)
            identity_there, self.batches = str(self._state.pop("made_by")), int(self._state.pop("batches"))
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise DestinationError(f"{self.path}: not a checkpoint of an evaluation ({error}); remove it") from error
        if identity_there != self._identity:
            there = json.loads(identity_there)
            differing = [k for k in sorted({*there, *identity}) if there.get(k) != identity.get(k)]
            raise DestinationError(
                f"{self.path}: belongs to another evaluation (differs in {', '.join(differing)}); remove it, or use another file"
            )

    def load_into(self, totals: Totals) -> int:
        """Adds what is done, and says after how many batches."""
        if self._state is not None:
            totals.merge(self._state)
        return self.batches

    def due(self) -> bool:
        return time.monotonic() - self._last >= self._seconds

    def save(self, totals: Totals, batches: int) -> None:
        """Replaces the file; a crash leaves the old one."""
        temporary = self.path.with_name(self.path.name + ".new")
        with temporary.open("wb") as file:
            arrays: dict[str, Any] = {
                "made_by": np.array(self._identity),
                "batches": np.array(batches),
                **totals.state(),
            }
            np.savez(file, **arrays)
        temporary.replace(self.path)
        self._last = time.monotonic()

    def remove(self) -> None:
        """When the result is out."""
        self.path.unlink(missing_ok=True)
