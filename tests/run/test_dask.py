"""Clusters: the same bytes, whatever happens to workers and scheduler."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from copy import deepcopy
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from cluster import QUICK, Cluster, cluster, namespaces_can_be_made

import clozeline
from clozeline.errors import ConfigError, JobError
from clozeline.run.jobs import run_job
from clozeline.run.stage import RunOptions
from clozeline.sharding.shard import ShardOptions

pytest.importorskip("distributed")
SHARDS = 24


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2 MB that `tokenizers` needs some seconds for."""
    path = tmp_path_factory.mktemp("text") / "words.txt"
    words = np.array([f"{a}{b}{c}" for a in "bdfg" for b in "aeiou" for c in ("lm", "rt", "st", "mp")])
    draws = np.random.default_rng(5).integers(len(words), size=(20_000, 24))
    path.write_text("\n".join(" ".join(line) for line in words[draws]) + "\n")
    return path


@pytest.fixture(scope="module")
def wanted(text: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    dest = tmp_path_factory.mktemp("serial") / "out"
    clozeline.prepare(
        text, dest, tokenizer, ShardOptions(num_shards=SHARDS), run=RunOptions(executor="serial"), engine="tokenizers"
    )
    return content(dest)


def content(dest: Path) -> dict[str, bytes]:
    return {str(p.relative_to(dest)): p.read_bytes() for p in dest.rglob("*") if p.is_file() and p.name != "run.json"}


def start(made: Cluster, text: Path, dest: Path, tokenizer: Path, *options: str) -> subprocess.Popen[bytes]:
    argv = [*made.prefix, sys.executable, "-m", "clozeline", "run", str(text), str(dest), "-q", *options]
    argv += ["--tokenizer", str(tokenizer), "--num-shards", str(SHARDS), "--engine", "tokenizers", "--executor", "dask"]
    argv += ["--dask-scheduler-file", str(made.scheduler_file)]
    return subprocess.Popen(argv, env={**os.environ, **QUICK}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_shards(dest: Path, count: int, client: subprocess.Popen[bytes]) -> None:
    """Until so many shards are done and more are to come."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and client.poll() is None:
        if len(list((dest / "packed" / ".clozeline" / "done").glob("*.json"))) >= count:
            return
        time.sleep(0.01)
    out, err = client.communicate()
    raise AssertionError(f"not {count} shards in time: {out!r} {err.decode()}")


def test_a_killed_worker_and_one_cut_off_cost_no_shard(
    text: Path, tokenizer: Path, wanted: dict[str, bytes], tmp_path: Path
) -> None:
    """Three workers as separate processes in three networks; without the right to make networks, on loopback."""
    apart = namespaces_can_be_made()
    dest = tmp_path / "out"
    with cluster(tmp_path / "cluster", 3, apart=apart) as made:
        client = start(made, text, dest, tokenizer)
        wait_for_shards(dest, 2, client)
        made.kill(0)
        if apart:
            wait_for_shards(dest, 4, client)
            made.cut_off(1)
        _, err = client.communicate(timeout=300)
        assert client.returncode == 0, err.decode()
        assert len(list((dest / "packed").glob("*.arrow"))) == SHARDS
    assert content(dest) == wanted


def test_a_lost_scheduler_ends_the_client_and_resume_finishes(
    text: Path, tokenizer: Path, wanted: dict[str, bytes], tmp_path: Path
) -> None:
    dest = tmp_path / "out"
    with cluster(tmp_path / "first", 2) as made:
        client = start(made, text, dest, tokenizer)
        wait_for_shards(dest, 2, client)
        os.killpg(made.scheduler.pid, signal.SIGKILL)
        _, err = client.communicate(timeout=300)
        assert client.returncode == 2
        assert b"--resume" in err
        assert b"Traceback" not in err
    assert not (dest / "packed" / "manifest.json").exists()
    clozeline.prepare(
        text,
        dest,
        tokenizer,
        ShardOptions(num_shards=SHARDS),
        run=RunOptions(executor="serial", resume=True),
        engine="tokenizers",
    )
    assert content(dest) == wanted


def test_a_cluster_of_our_own_makes_the_same_bytes_and_leaves_dask_as_it_was(
    text: Path, tokenizer: Path, wanted: dict[str, bytes], tmp_path: Path
) -> None:
    """Also where somebody else's dashboard has the usual port, of which dask would warn."""
    import dask.config

    before = deepcopy(dask.config.config)
    with socket.socket() as usual:
        with contextlib.suppress(OSError):  # taken already: as well
            usual.bind(("127.0.0.1", 8787))
            usual.listen()
        clozeline.prepare(
            text,
            tmp_path / "out",
            tokenizer,
            ShardOptions(num_shards=SHARDS),
            run=RunOptions(executor="dask", workers=2),
            engine="tokenizers",
        )
    assert content(tmp_path / "out") == wanted
    assert dask.config.config == before


def test_workers_that_join_later_are_given_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window is twice the workers there are, not twice those that were there when the client came."""
    import dask.config
    from distributed import Client, LocalCluster

    from clozeline.run import dask as module

    monkeypatch.setattr(module, "_COUNT_SECONDS", 0)
    with (
        dask.config.set(module.LEAN),
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as local,
        Client(local, set_as_default=False) as client,
    ):
        executor = module.Cluster(client)
        assert executor.workers == 1
        local.scale(3)
        client.wait_for_workers(3, timeout=180)
        assert executor.workers == 3


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_any_executor_makes_the_same_bytes(
    kind: str, text: Path, tokenizer: Path, wanted: dict[str, bytes], tmp_path: Path
) -> None:
    with (
        ThreadPoolExecutor(3) if kind == "threads" else ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    ) as executor:
        clozeline.prepare(
            text,
            tmp_path / "out",
            tokenizer,
            ShardOptions(num_shards=SHARDS),
            run=RunOptions(executor=executor),
            engine="tokenizers" if kind == "threads" else "auto",
        )
    assert content(tmp_path / "out") == wanted


def test_a_worker_with_other_versions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"worker on .* has numpy .*\(here 0\.1\).* install the same"):
        run_job(None, {**clozeline.run.executors.library_versions(), "numpy": "0.1"})


def test_no_scheduler_is_an_error_that_says_so(text: Path, tokenizer: Path, tmp_path: Path) -> None:
    run = RunOptions(executor="dask", dask_scheduler_file=str(tmp_path / "none.json"))
    with pytest.raises(JobError, match="no dask scheduler answers"):
        clozeline.prepare(text, tmp_path / "out", tokenizer, run=run)


def test_a_scheduler_without_dask_is_refused() -> None:
    with pytest.raises(ConfigError, match="use 'dask'"):
        RunOptions(dask_address="tcp://10.0.0.1:8786")
