"""Jobs on a dask cluster (extra `dask`): one that runs already, or one of worker processes on this machine.

Only the descriptions of finished shards come back. A worker that dies or is cut off loses its jobs to the others; should it come
back and finish one after all, it writes the same bytes under the same name.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError, JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CONNECT_SECONDS = 15
_COUNT_SECONDS = 5  # between questions how many workers there are

# For a cluster of our own, without what dask does beside running jobs. By default it samples the stack of every worker a hundred
# times a second, looks fifty times a second whether event loops are late, and has malloc give back memory at once that the next
# batch of documents asks for again (nine page faults of ten): together 10 to 20 % of the CPU time.
LEAN: dict[str, Any] = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
}


class Cluster(Executor):
    """A dask client as an executor that fails as others do: with BrokenExecutor for jobs whose workers or scheduler are lost."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._executor = client.get_executor(pure=False)
        self._workers, self._asked = 0, float("-inf")

    @property
    def workers(self) -> int:
        """Jobs that it runs at a time: workers come and go."""
        if time.monotonic() >= self._asked + _COUNT_SECONDS:
            with contextlib.suppress(Exception):  # a lost scheduler is told of by the jobs
                self._workers = sum(self._client.nthreads().values())
            self._asked = time.monotonic()
        return max(1, self._workers)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        from distributed import KilledWorker

        try:
            inner = self._executor.submit(fn, *args, **kwargs)
        except Exception as error:  # of a client that has lost its scheduler, by whatever layer notices first
            raise BrokenExecutor(f"the dask scheduler is lost ({error})") from error
        outer: Future[Any] = Future()

        def pass_on(done: Future[Any]) -> None:
            if not outer.set_running_or_notify_cancel():
                return
            if done.cancelled():
                outer.set_exception(BrokenExecutor("the dask scheduler is lost"))
            elif isinstance(done.exception(), KilledWorker):
                outer.set_exception(BrokenExecutor(str(done.exception())))
            elif (error := done.exception()) is not None:
                outer.set_exception(error)
            else:
                outer.set_result(done.result())

        inner.add_done_callback(pass_on)
        outer.add_done_callback(lambda future: inner.cancel() if future.cancelled() else None)
        return outer


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    """Without the tracebacks that dask logs for every lost connection: what matters of them, our errors say."""
    loggers = [logging.getLogger(f"distributed.{name}") for name in ("batched", "client", "core", "worker.memory")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def _local_cluster(workers: int) -> Iterator[Any]:
    """Worker processes on this machine, which nannies start again when they die."""
    import dask.config
    from distributed import LocalCluster

    with (
        dask.config.set(LEAN),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,  # none: what a job holds is bounded, and there is nothing to spill
            dashboard_address=None,
            scheduler_kwargs={
                "dashboard_address": "127.0.0.1:0"
            },  # any port, where dask would warn of 8787 being taken
        ) as cluster,
    ):
        yield cluster


@contextlib.contextmanager
def open_cluster(workers: int, address: str | None, scheduler_file: str | None) -> Iterator[Cluster]:
    """Connects to a cluster, or starts one.

    Args:
        workers: processes to start where neither address nor file is given.
        address: of a scheduler (tcp://10.0.0.1:8786).
        scheduler_file: JSON that `dask scheduler --scheduler-file` writes.

    Raises:
        ConfigError: `distributed` is not installed.
        JobError: no scheduler answers, or it has no workers.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError("--executor dask needs the package distributed: pip install 'clozeline[dask]'") from error
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet_logs())
        if not address and not scheduler_file:
            address = stack.enter_context(_local_cluster(workers)).scheduler_address
        try:
            if scheduler_file:  # a client would wait for the file for ever
                address = json.loads(Path(scheduler_file).read_bytes())["address"]
            client = stack.enter_context(Client(address, timeout=_CONNECT_SECONDS, set_as_default=False))
        except (OSError, ValueError, KeyError) as error:
            raise JobError(
                f"{address or scheduler_file}: no dask scheduler answers there ({error}); "
                "start one, then run again, with --resume if something was done already"
            ) from error
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
        if not client.nthreads():
            raise JobError(f"{address or scheduler_file}: the dask cluster has no workers; start some (dask worker)")
        yield Cluster(client)
