"""Where a job's time goes: seconds by section, wall and CPU, for `--profile`.

Always counted, since it costs a microsecond a section and a section handles a block of rows or text. Sections nest: what an
inner one takes does not count for the outer one.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Item = TypeVar("Item")
    Seconds = dict[str, tuple[float, float]]

OTHER = "other"  # what no section claims


class _Clock(threading.local):
    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.current = OTHER
        self.seconds: Seconds = {}
        self.wall, self.cpu = time.perf_counter(), time.thread_time()

    def switch(self, name: str) -> str:
        """What has passed since the last switch goes to the section that was on; returns it."""
        wall, cpu = time.perf_counter(), time.thread_time()
        before = self.seconds.get(self.current, (0.0, 0.0))
        self.seconds[self.current] = (before[0] + wall - self.wall, before[1] + cpu - self.cpu)
        self.wall, self.cpu = wall, cpu
        previous, self.current = self.current, name
        return previous


_clock = _Clock()


class section:  # noqa: N801  (used like a function: `with section("read"):`)
    """Counts the time of a `with` block, in this thread, for a name."""

    __slots__ = ("_name", "_previous")

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._previous = _clock.switch(self._name)

    def __exit__(self, *exc: object) -> None:
        _clock.switch(self._previous)


def timed(name: str, items: Iterable[Item]) -> Iterator[Item]:
    """The same items; the time it takes to get them counts for the section."""
    iterator = iter(items)
    while True:
        with section(name):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def restart() -> None:
    """Begins a new account for this thread."""
    _clock.restart()


def account() -> Seconds:
    """(wall, CPU) seconds of this thread by section since `restart`."""
    _clock.switch(_clock.current)
    return dict(_clock.seconds)
