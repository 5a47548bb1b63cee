"""SIGKILL at every step that touches the file system, and at random instants with worker processes; then --resume.

The steps are those that Python's audit hooks tell of (open, rename, remove, make a folder): between two of them a kill
leaves the same state on disk, but for bytes in temporary files.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from stages import STAGES, Stages, refuse_or_be_whole

from clozeline import RunOptions
from clozeline.errors import ClozelineError

STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
SERIAL = RunOptions(executor="serial")


def killed_before_step(step: int, stages: Stages, stage: str, dest: Path, run: RunOptions) -> bool:
    """Works in a child that is killed before its step-th step in `dest`; whether it was killed, and did not end first."""
    child = os.fork()
    if not child:
        count = 0

        def count_steps(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal count
            if event in STEPS and str(arguments[0]).startswith(str(dest)):
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1

        signal.alarm(60)
        sys.addaudithook(count_steps)
        try:
            stages.make(stage, dest, run)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


def kill_and_resume(stages: Stages, stage: str, folder: Path, stride: int) -> int:
    step = kills = 0
    while True:
        dest = folder / f"{stage}-{step}"
        if not killed_before_step(step, stages, stage, dest, SERIAL):
            break
        refuse_or_be_whole(dest, stages.clean[stage])
        stages.make(stage, dest, RunOptions(executor="serial", resume=True))
        stages.check(stage, dest)
        shutil.rmtree(dest)
        step += stride
        kills += 1
    stages.check(stage, dest)
    return kills


@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_some_steps_then_resumed_gives_the_same_bytes(stages: Stages, tmp_path: Path, stage: str) -> None:
    assert kill_and_resume(stages, stage, tmp_path, 17) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_every_step_then_resumed_gives_the_same_bytes(stages: Stages, tmp_path: Path, stage: str) -> None:
    assert kill_and_resume(stages, stage, tmp_path, 1) >= 30


@pytest.mark.parametrize("stage", STAGES)
def test_killed_while_replacing_then_forced_gives_the_same_bytes(stages: Stages, tmp_path: Path, stage: str) -> None:
    """--force over a finished data set, killed on the way: nothing old may be taken for new."""
    for step in range(0, 60, 13):
        dest = tmp_path / f"{step}"
        stages.make(stage, dest, SERIAL)
        if killed_before_step(step, stages, stage, dest, RunOptions(executor="serial", force=True)):
            refuse_or_be_whole(dest, stages.clean[stage])
            try:
                stages.make(stage, dest, RunOptions(executor="serial", resume=True))
            except ClozelineError:
                stages.make(stage, dest, RunOptions(executor="serial", force=True))
        stages.check(stage, dest)


def run_until(seconds: float | None, dest: Path, command: list[str]) -> float | None:
    """Runs a command in worker processes, and kills it `seconds` after `dest` appears; None lets it end.

    Returns:
        The seconds from there to its end, None where it was killed.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "clozeline", *command], start_new_session=True, stderr=subprocess.PIPE
    )
    while not dest.exists() and process.poll() is None:
        time.sleep(0.002)
    began = time.monotonic()
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate(timeout=60)
    took = time.monotonic() - began
    assert process.returncode in (0, -signal.SIGKILL)
    until = time.monotonic() + 20
    while time.monotonic() < until:  # workers end by themselves when their parent is gone
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return None if process.returncode else took
        time.sleep(0.05)
    raise AssertionError("workers are left")


def at_random_instants(stages: Stages, stage: str, folder: Path, count: int) -> int:
    """How many of `count` runs were killed before they ended."""
    first = folder / "first"
    whole = run_until(None, first, stages.command(stage, first))
    assert whole is not None
    stages.check(stage, first)
    draw, kills = random.Random(7), 0
    for i in range(count):
        dest = folder / str(i)
        kills += run_until(draw.uniform(0.0, whole), dest, stages.command(stage, dest)) is None
        refuse_or_be_whole(dest, stages.clean[stage])
        stages.make(stage, dest, RunOptions(executor="serial", resume=True))
        stages.check(stage, dest)
    return kills


@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_a_random_instant_with_workers_then_resumed(stages: Stages, tmp_path: Path, stage: str) -> None:
    at_random_instants(stages, stage, tmp_path, 1)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_fifty_random_instants_with_workers_then_resumed(stages: Stages, tmp_path: Path, stage: str) -> None:
    assert at_random_instants(stages, stage, tmp_path, 50) > 25


def test_two_starts_at_once_one_refuses(stages: Stages, tmp_path: Path) -> None:
    dest = tmp_path / "made"
    command = [sys.executable, "-m", "clozeline", *stages.command("shard", dest)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    time.sleep(0.05)
    second = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    said = [p.communicate(timeout=60)[1].decode() for p in (first, second)]
    assert sorted([first.returncode, second.returncode]) == [0, 2]
    refused = said[0] if first.returncode else said[1]
    assert (
        "another clozeline is writing here" in refused
        or "finished data set" in refused
        or "unfinished data set" in refused
    )
    assert "Traceback" not in refused
    stages.check("shard", dest)
