"""The run loop: every job once, whatever becomes of the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from run_jobs_by_hand import Misbehaving

from clozeline.errors import ConfigError, Interrupted, JobError
from clozeline.run.jobs import run_jobs
from clozeline.run.stage import RunOptions

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}:{HERE}")


def run(jobs: list[Misbehaving], timeout: float | None = None, **options: object) -> list[str]:
    done: list[str] = []
    opened = RunOptions(**{"workers": 2, **options})
    run_jobs(jobs, opened.open_executor, opened.worker_count, lambda job, *_: done.append(job.name), timeout)
    return done


@pytest.mark.parametrize("executor", ["serial", "processes", "threads"])
def test_every_job_runs_once(tmp_path: Path, executor: str) -> None:
    jobs = [Misbehaving(tmp_path, i) for i in range(9)]
    with ThreadPoolExecutor(2) as threads:
        done = run(jobs, executor=threads if executor == "threads" else executor)
    assert sorted(done) == sorted(job.name for job in jobs)
    assert [job.tries() for job in jobs] == [1] * 9


def test_a_worker_that_dies_once_costs_nothing(tmp_path: Path) -> None:
    jobs = [Misbehaving(tmp_path, i, "die", int(i == 3)) for i in range(6)]
    assert sorted(run(jobs)) == [f"job-{i}" for i in range(6)]


def test_a_worker_that_dies_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"job-1: its worker died twice .* --resume"):
        run([Misbehaving(tmp_path, i, "die", 9 * (i == 1)) for i in range(3)])


def test_a_worker_that_hangs_once_is_ended_and_tried_again(tmp_path: Path) -> None:
    jobs = [Misbehaving(tmp_path, i, "hang", int(i == 0)) for i in range(4)]
    # Long enough for a worker to start on a busy machine, which is counted too.
    assert sorted(run(jobs, timeout=8.0)) == [f"job-{i}" for i in range(4)]


def test_a_worker_that_hangs_twice_is_named(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(JobError, match=r"job-0: not done after 1\.5 seconds, twice.*--task-timeout"):
        run([Misbehaving(tmp_path, 0, "hang", 9)], timeout=1.5)
    assert time.monotonic() - began < 120


def test_a_single_worker_that_hangs_is_ended_too(tmp_path: Path) -> None:
    assert run([Misbehaving(tmp_path, 0, "hang", 1)], timeout=2.0, workers=1, task_timeout=2.0) == ["job-0"]


@pytest.mark.parametrize("executor", ["serial", "dask"])
def test_a_time_limit_that_nobody_could_keep_is_refused(executor: str) -> None:
    with pytest.raises(ConfigError, match="only a process of our own can be ended"):
        RunOptions(executor=executor, task_timeout=1.0)


def test_jobs_waiting_in_line_are_not_overdue(tmp_path: Path) -> None:
    """Twenty jobs of a second each on two workers take ten seconds, none of them more than its eight."""
    jobs = [Misbehaving(tmp_path, i, "sleep", 1) for i in range(20)]
    assert len(run(jobs, timeout=8.0)) == 20
    assert [job.tries() for job in jobs] == [1] * 20


@pytest.mark.parametrize(
    ("what", "message"), [("memory", "job-1: out of memory"), ("disk", r"job-1: No space left on device \(/some")]
)
def test_faults_of_the_machine_name_the_job(tmp_path: Path, what: str, message: str) -> None:
    with pytest.raises(JobError, match=message):
        run([Misbehaving(tmp_path, i, what, int(i == 1)) for i in range(3)])


def test_the_first_signal_finishes_what_runs(tmp_path: Path) -> None:
    jobs = [Misbehaving(tmp_path, i, "sleep", 1) for i in range(40)]

    def interrupt() -> None:
        wait_until(lambda: bool(list(tmp_path.glob("done-*"))))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(Interrupted, match="--resume"):
        run(jobs)
    begun = sum(job.tries() for job in jobs)
    assert 0 < len(list(tmp_path.glob("done-*"))) == begun < 40


PROGRAM = """
import sys
from pathlib import Path
from run_jobs_by_hand import Misbehaving
from clozeline.run.jobs import run_jobs
from clozeline.run.stage import RunOptions
if __name__ == "__main__":
    options = RunOptions(workers=2, executor=sys.argv[2])
    jobs = [Misbehaving(Path(sys.argv[1]), i, sys.argv[3], 1) for i in range(8)]
    run_jobs(jobs, options.open_executor, 2, lambda job, *_: None)
"""


def wait_until(true: Callable[[], bool], every: float = 0.05) -> None:
    until = time.monotonic() + 120
    while not true():
        assert time.monotonic() < until, "waited for two minutes"
        time.sleep(every)


def group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def start(folder: Path, executor: str, what: str) -> subprocess.Popen[bytes]:
    program = folder.parent / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, str(program), str(folder), executor, what], stderr=subprocess.PIPE, start_new_session=True
    )
    wait_until(lambda: bool(list(folder.glob("*-0"))))
    return process


@pytest.mark.parametrize("executor", ["processes", "serial"])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_stops_at_once_and_leaves_no_process(
    tmp_path: Path, executor: str, second: signal.Signals
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    process = start(folder, executor, "hang")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None

    def ended() -> bool:
        # Once more on a busy machine: two signals that come before the first is looked at are one.
        process.send_signal(second)
        return process.poll() is not None

    wait_until(ended, every=0.5)
    wait_until(lambda: not group_lives(process.pid))
    assert process.stderr is not None
    process.stderr.close()


def test_ctrl_c_in_a_terminal_reaches_no_worker(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the whole process group, also to workers that are starting: none may print or die."""
    folder = tmp_path / "work"
    folder.mkdir()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for delay in (0.4, 0.8, 1.2):
        process = subprocess.Popen(
            [sys.executable, str(program), str(folder), "processes", "sleep"],
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert errors.count(b"Traceback") <= 1, errors.decode()  # the program itself prints its own
        assert b"Process Spawn" not in errors
        assert b"spawn_main" not in errors


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    process = start(folder, "processes", "hang")
    process.kill()
    process.wait(60)
    wait_until(lambda: not group_lives(process.pid))
    assert process.stderr is not None
    process.stderr.close()
