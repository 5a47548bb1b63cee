"""Runs jobs over an executor: a bounded window, a second try for what a dying worker took with it, and an orderly stop."""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from typing import TYPE_CHECKING, Any, Protocol

from clozeline.errors import ClozelineError, ConfigError, Interrupted, JobError
from clozeline.run.dask import Cluster
from clozeline.run.executors import SerialExecutor, WorkerProcesses, library_versions
from clozeline.store import sections

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from clozeline.store.output import ShardResult
    from clozeline.store.sections import Seconds


class Job(Protocol):
    """A picklable piece of work: reads something, writes its shards, returns their descriptions."""

    @property
    def name(self) -> str:
        """What it writes, for messages."""
        ...

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        """(stage, file name) of everything it writes."""
        ...

    def __call__(self) -> list[ShardResult]: ...


def run_job(job: Job, versions: dict[str, str] | None) -> tuple[list[ShardResult], Seconds]:
    """What a worker does: the job, and the account of its time.

    Args:
        versions: of the libraries in the process that asks, where this may be another installation.

    Raises:
        ConfigError: it is another installation, and differs.
    """
    if versions is not None:
        here = library_versions()
        differing = sorted(name for name in {*versions, *here} if versions.get(name) != here.get(name))
        if differing:
            told = ", ".join(f"{n} {here.get(n, 'absent')} (here {versions.get(n, 'absent')})" for n in differing)
            raise ConfigError(
                f"the worker on {platform.node()} has {told}: other versions could make other bytes; install the same"
            )
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    sections.restart()
    return job(), sections.account()


class _Stop:
    """Turns the first SIGINT or SIGTERM into a flag; the second has its usual effect, at once."""

    def __init__(self) -> None:
        self.asked = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> _Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def run_jobs(
    jobs: Sequence[Job],
    make_executor: Callable[[int | None], AbstractContextManager[Executor]],
    workers: int,
    on_done: Callable[[Job, list[ShardResult], Seconds], None],
    timeout: float | None = None,
) -> None:
    """Runs every job once, calling `on_done` in this thread as each ends.

    Args:
        make_executor: opens an executor with that many workers, or the usual number for None.
        workers: at most twice as many jobs are handed out at a time, so that memory does not grow with their number.
        timeout: seconds that a job may take in a worker process; it is ended then, and tried once more.

    Raises:
        Interrupted: a signal asked to stop; the jobs that were running have ended and were reported.
        JobError: a worker died or hung twice on the same job, or a job failed for a reason of the machine's.
        ClozelineError: what a job raised.
    """
    with _Stop() as stop:
        waiting = list(jobs)
        while waiting:
            # A dead worker breaks its pool, and any job under way may be the culprit: each gets its second try alone.
            lost, waiting = _run(waiting, make_executor(None), workers, 2 * workers, on_done, stop, timeout)
            for job in lost:
                began = time.monotonic()
                if _run([job], make_executor(1), 1, 1, on_done, stop, timeout)[0]:
                    if timeout is not None and time.monotonic() - began >= timeout:
                        raise JobError(
                            f"{job.name}: not done after {timeout:g} seconds, twice; the other shards are kept. "
                            "Look at its documents or raise --task-timeout, then run again with --resume"
                        )
                    raise JobError(
                        f"{job.name}: its worker died twice (killed, or out of memory); the other shards are kept. "
                        "Free memory or use fewer workers (-j), then run again with --resume"
                    )


def _run(
    jobs: Sequence[Job],
    executor_manager: AbstractContextManager[Executor],
    workers: int,
    window: int,
    on_done: Callable[[Job, list[ShardResult], Seconds], None],
    stop: _Stop,
    timeout: float | None,
) -> tuple[list[Job], list[Job]]:
    """Runs the jobs until they are done or a worker dies; returns those under way at that moment and those not begun."""
    waiting = deque(jobs)
    running: dict[Future[Any], Job] = {}
    failure: BaseException | None = None
    lost: list[Job] = []
    began: dict[Future[Any], float] = {}
    with executor_manager as executor:
        versions = None if isinstance(executor, SerialExecutor | WorkerProcesses) else library_versions()
        if isinstance(executor, SerialExecutor):
            window = 1  # handing out a job runs it: it is told of before the next begins
        while True:
            if isinstance(executor, Cluster):
                window = 2 * executor.workers
            while waiting and len(running) < window and failure is None and not lost and not stop.asked:
                job = waiting.popleft()
                try:
                    running[executor.submit(run_job, job, versions)] = job
                except BrokenExecutor:
                    lost.append(job)
            if not running:
                break
            left = None
            if timeout is not None:
                for future in list(running)[:workers]:  # jobs are taken in order: these are under way
                    began.setdefault(future, time.monotonic())
                left = max(
                    0.0, min(began[future] for future in running if future in began) + timeout - time.monotonic()
                )
            ended, _ = wait(running, left, FIRST_COMPLETED)
            if not ended and isinstance(executor, WorkerProcesses):
                executor.kill()
                ended, _ = wait(running)
            for future in ended:
                job = running.pop(future)
                if future.cancelled():
                    continue
                error = future.exception()
                if error is None:
                    on_done(job, *future.result())
                elif isinstance(error, BrokenExecutor):
                    lost.append(job)
                elif failure is None:
                    failure = _explained(job, error)
            if failure is not None or stop.asked:
                for future in running:
                    future.cancel()
    if failure is not None:
        raise failure
    if stop.asked:
        raise Interrupted("stopped; what is done is kept: run the same command again with --resume")
    return lost, list(waiting)


def _explained(job: Job, error: BaseException) -> BaseException:
    """Errors of the machine (disk full, out of memory) named by job; ours and plain faults as they are."""
    if isinstance(error, OSError | MemoryError) and not isinstance(error, ClozelineError):
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or "out of memory"
        place = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
        explained = JobError(
            f"{job.name}: {what}{place}; the shards done so far are kept: mend it, then run again with --resume"
        )
        explained.__cause__ = error
        return explained
    return error
