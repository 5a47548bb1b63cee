"""A dask cluster of separate processes for tests: in network namespaces with addresses of their own where these can be made
(root, iproute2), else on the loopback interface."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAN = {  # as docs/cluster.md advises
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "MALLOC_TRIM_THRESHOLD_": "134217728",
}
QUICK = {  # what a cluster takes minutes to notice by default
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "4s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "6s",
    "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "0",
}


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Cluster:
    """A scheduler and workers.

    Attributes:
        address: of the scheduler.
        prefix: what a client's command line begins with, to be in the same network.
        apart: whether every worker has a network of its own, and can be cut off.
    """

    def __init__(self, folder: Path, workers: int, *, apart: bool) -> None:
        self.folder, self.apart = folder, apart
        self._name = f"clz{os.getpid()}"
        self._spaces = [f"{self._name}w{k}" for k in range(workers)] if apart else []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.prefix = ["ip", "netns", "exec", self._name] if apart else []
        if apart:
            self._make_networks()
        host, port = ("10.213.0.1", 8786) if apart else ("127.0.0.1", 0)
        file = folder / "scheduler.json"
        self.scheduler = self._start(
            self.prefix,
            "scheduler",
            "--host",
            host,
            "--port",
            str(port),
            "--scheduler-file",
            str(file),
            "--no-dashboard",
        )
        deadline = time.monotonic() + 180
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.scheduler_file = file
        self.workers = [
            self._start(
                ["ip", "netns", "exec", self._spaces[k]] if apart else [],
                "worker",
                "--scheduler-file",
                str(file),
                "--nthreads",
                "1",
                "--no-nanny",
                "--memory-limit",
                "0",
                "--no-dashboard",
                "--local-directory",
                str(folder / f"local{k}"),
            )
            for k in range(workers)
        ]

    def _make_networks(self) -> None:
        hub = self._name
        ip("netns", "add", hub)
        ip("-n", hub, "link", "set", "lo", "up")
        ip("-n", hub, "link", "add", "br0", "type", "bridge")
        ip("-n", hub, "addr", "add", "10.213.0.1/24", "dev", "br0")
        ip("-n", hub, "link", "set", "br0", "up")
        for k, space in enumerate(self._spaces):
            ip("netns", "add", space)
            ip("-n", hub, "link", "add", f"v{k}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("-n", hub, "link", "set", f"v{k}", "master", "br0", "up")
            ip("-n", space, "addr", "add", f"10.213.0.{10 + k}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def _start(self, prefix: list[str], kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        argv = [*prefix, sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments]
        with (self.folder / f"{kind}{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                argv, stdout=log, stderr=log, env={**os.environ, **LEAN, **QUICK}, start_new_session=True
            )
        self.processes.append(process)
        return process

    def kill(self, worker: int) -> None:
        os.killpg(self.workers[worker].pid, signal.SIGKILL)

    def cut_off(self, worker: int) -> None:
        """The worker lives on, but no packet reaches it or comes from it."""
        ip("-n", self._name, "link", "set", f"v{worker}", "down")

    def stop(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for space in [*self._spaces, self._name] if self.apart else []:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def namespaces_can_be_made() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"clztry{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode == 0
    if made:
        ip("netns", "del", name)
    return made


@contextlib.contextmanager
def cluster(folder: Path, workers: int, *, apart: bool = False) -> Iterator[Cluster]:
    folder.mkdir()
    made = None
    try:
        made = Cluster(folder, workers, apart=apart)
        yield made
    finally:
        if made is not None:
            made.stop()
