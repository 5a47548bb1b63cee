"""Jobs that misbehave, for the run loop; in a module of their own so that worker processes can import them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Misbehaving:
    """Notes in `folder` that it began, then does `what` as often as `times` says, then ends well."""

    folder: Path
    number: int
    what: str = ""
    times: int = 0

    @property
    def name(self) -> str:
        return f"job-{self.number}"

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        return ()

    def tries(self) -> int:
        return len(list(self.folder.glob(f"{self.number}-*")))

    def __call__(self) -> list[Any]:
        again = self.tries()
        (self.folder / f"{self.number}-{again}").touch()
        if again < self.times:
            {"die": self._die, "hang": self._hang, "sleep": self._sleep, "memory": self._memory, "disk": self._disk}[
                self.what
            ]()
        (self.folder / f"done-{self.number}").touch()
        return []

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _hang(self) -> None:
        time.sleep(600)

    def _sleep(self) -> None:
        time.sleep(1)

    def _memory(self) -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
        bytearray(2**33)

    def _disk(self) -> None:
        raise OSError(28, "No space left on device", "/somewhere/shard")
