"""Where jobs run: in this process, or in worker processes started afresh (spawn)."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import signal
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


KINDS = ("auto", "processes", "serial", "dask")
BYTES_DEPEND_ON = ("clozeline", "numpy", "pyarrow", "tokenizers", "nanotoken", "gigatoken", "sentencex", "jieba")
START_SECONDS = 0.4  # of CPU that a worker process takes before it begins to work


@cache
def library_versions() -> dict[str, str]:
    """Of what bytes could depend on, where it is installed."""
    versions = {"python": platform.python_version()}
    for package in BYTES_DEPEND_ON:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def usable_cores() -> int:
    """Cores that this process may use (affinity and cgroups' cpusets count, unlike in `os.cpu_count`)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SerialExecutor(Executor):
    """Runs each job at once, in this process and thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class WorkerProcesses(ProcessPoolExecutor):
    """Processes that an exception in the `with` block ends at once, instead of waiting for what they do."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        # A process that is starting takes over which signals are held back: Ctrl-C must not reach it half-way.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def kill(self) -> None:
        """Ends the processes; what they were doing ends with BrokenExecutor."""
        for process in list((self._processes or {}).values()):
            process.kill()

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            self.kill()
        super().__exit__(*error)


def start_worker() -> None:
    """Set-up of a worker process: one thread for the tokenizer, signals left to the parent, and an end when the parent ends."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def end_with_parent() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=end_with_parent, daemon=True).start()


def choose(kind: str, workers: int, seconds: float) -> tuple[str, int]:
    """What `auto` stands for: no more worker processes than the work pays for, none where this process is as fast alone.

    Args:
        seconds: about how long one core would take.

    Returns:
        The kind of executor and the number of workers.
    """
    if kind == "serial":
        return kind, 1
    if kind != "auto":
        return kind, workers
    worth = int(min(workers, seconds / START_SECONDS))
    return ("processes", worth) if worth > 1 else ("serial", 1)


def make_executor(kind: str, workers: int) -> Executor:
    """`processes` (also for `auto`, which `choose` has not turned into something else) or `serial`."""
    if kind == "serial":
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        return SerialExecutor()
    context = multiprocessing.get_context("spawn")
    return WorkerProcesses(workers, mp_context=context, initializer=start_worker)
