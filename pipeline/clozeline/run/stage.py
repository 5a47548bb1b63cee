"""One run of a stage: takes its outputs, runs the jobs that are not done yet, publishes."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError
from clozeline.run.dask import open_cluster
from clozeline.run.executors import KINDS, choose, library_versions, make_executor, usable_cores
from clozeline.run.jobs import Job, run_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    RunPass = Callable[[Sequence[Job]], None]

    from clozeline.store.output import Output, ShardResult
    from clozeline.store.sections import Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Told to `RunOptions.on_progress` at the start and whenever a job ends.

    Attributes:
        stage: what is being made.
        done, total: jobs.
        shards: files finished in this run.
        bytes: written in this run.
    """

    stage: str
    done: int
    total: int
    shards: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Told to `RunOptions.on_profile` when a stage has ended.

    Attributes:
        stage: what was made.
        seconds: from start to publication.
        workers: how many there were.
        input_bytes: what was read.
        sections: (wall, CPU) seconds of all jobs together by section.
    """

    stage: str
    seconds: float
    workers: int
    input_bytes: int
    sections: Seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """A data set that a stage has made.

    Attributes:
        path: its folder.
        stage: "sharding", "packing" or "masking".
        seed: of the masks; None before masking.
        shards, rows, tokens, bytes: totals; rows are documents for text, tokens positions that are not padding.
        ledger: the account of this stage; history: of those before, oldest first.
        sha256: digest of manifest.json, and so of all the data.
        nothing_to_do: it was finished before.
    """

    path: str
    stage: str
    seed: int | None
    shards: int
    rows: int
    tokens: int
    bytes: int
    ledger: dict[str, Any]
    history: tuple[dict[str, Any], ...]
    sha256: str
    nothing_to_do: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """How work is run; nothing here changes a byte of what is made.

    Attributes:
        workers: at most so many at a time; None for every usable core.
        executor: "processes", "serial" (this process), "auto" (processes where there is enough to do for them), "dask", or any
            `concurrent.futures.Executor` (left open).
        dask_address, dask_scheduler_file: of a running dask cluster; None for one of our own on this machine.
        resume: finish what an earlier run of the same work left.
        force: replace what is there.
        task_timeout: seconds that one job may take in a worker process; None for as long as it likes. A job that takes longer is
            ended and tried once more, alone.
        on_progress: called in the calling thread.
        on_warning: told of what looks wrong but may be meant.
        on_profile: told where the time went.
    """

    workers: int | None = None
    executor: str | Executor = "auto"
    dask_address: str | None = None
    dask_scheduler_file: str | None = None
    resume: bool = False
    force: bool = False
    task_timeout: float | None = None
    on_progress: Callable[[Progress], None] | None = None
    on_warning: Callable[[str], None] | None = None
    on_profile: Callable[[Profile], None] | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"workers is {self.workers}: at least 1 is needed")
        if isinstance(self.executor, str) and self.executor not in KINDS:
            raise ConfigError(f"executor is {self.executor!r}: use {', '.join(KINDS)}")
        if self.dask_address and self.dask_scheduler_file:
            raise ConfigError("dask_address and dask_scheduler_file both name a scheduler: give one of them")
        if (self.dask_address or self.dask_scheduler_file) and self.executor != "dask":
            raise ConfigError(f"a dask scheduler is named, but executor is {self.executor!r}: use 'dask'")
        if self.task_timeout is not None and not self.task_timeout > 0:
            raise ConfigError(f"task_timeout is {self.task_timeout}: a positive number of seconds is needed")
        if self.task_timeout is not None and self.executor not in ("auto", "processes"):
            raise ConfigError(
                f"task_timeout is set, but executor is {self.executor!r}: only a process of our own can be ended: use 'processes'"
            )
        if self.resume and self.force:
            raise ConfigError("resume and force contradict each other: one keeps what is there, the other removes it")

    @contextlib.contextmanager
    def open_executor(self, workers: int | None = None) -> Iterator[Executor]:
        """The executor, with that many workers where it is ours to start."""
        if not isinstance(self.executor, str):
            yield self.executor
            return
        if self.executor == "dask":
            with open_cluster(workers or self.worker_count, self.dask_address, self.dask_scheduler_file) as cluster:
                yield cluster
            return
        # One worker needs no process of its own, but one that may have to be ended, or that took the last one with it, does.
        alone = workers is None and self.worker_count == 1 and self.task_timeout is None
        kind = "serial" if alone else self.executor
        with make_executor(kind, workers or self.worker_count) as executor:
            yield executor

    @property
    def worker_count(self) -> int:
        return self.workers or usable_cores()

    def for_work(self, seconds: float) -> RunOptions:
        """With the executor and the workers that fit work which takes one core about so many seconds."""
        if not isinstance(self.executor, str):
            return self
        if self.task_timeout is not None:  # only a process can be ended
            return replace(self, executor="processes", workers=self.worker_count)
        kind, workers = choose(self.executor, self.worker_count, seconds)
        return replace(self, executor=kind, workers=workers)

    def place(self, path: str | os.PathLike[str]) -> str:
        """A path as workers can use it, which may have another working directory than this process."""
        elsewhere = self.executor == "dask" or not isinstance(self.executor, str)
        text = os.fspath(path)
        return str(Path.cwd() / text) if elsewhere and "://" not in text and not text.startswith("hf:") else text

    def place_of_tokenizer(self, tokenizer: str | os.PathLike[str]) -> str:
        """The same for a tokenizer, which may be a name on the hub."""
        return self.place(tokenizer) if Path(tokenizer).exists() else os.fspath(tokenizer)

    def warn(self, message: str) -> None:
        if self.on_warning is not None:
            self.on_warning(message)


def run_stage(
    name: str,
    outputs: Sequence[Output],
    jobs: Sequence[Job],
    options: RunOptions,
    *,
    input_bytes: int,
    seconds_per_mb: float,
    before: Callable[[RunPass], None] | None = None,
    check: Callable[[], None] | None = None,
) -> list[StageResult]:
    """Makes the outputs by running the jobs; returns what they are, in order.

    Args:
        name: of the stage, for progress.
        input_bytes: that the jobs read, and `seconds_per_mb` of one core that they take, about: how many workers that is worth.
        before: called when the outputs are taken and work is to be done, with a function that runs further jobs.
        check: called before publication when all jobs are done; may raise.

    Outputs that are finished already (`resume`) cost nothing. A job runs when any of its shards is missing.
    """
    options = options.for_work(input_bytes / 1e6 * seconds_per_mb)
    by_stage = {output.metadata.stage: output for output in outputs}
    started = time.time()
    for output in outputs:  # all of them, before one of them is begun
        output.refuse_foreign(force=options.force, resume=options.resume)
    with contextlib.ExitStack() as stack:
        for output in outputs:
            stack.enter_context(output.open(resume=options.resume, force=options.force))
        unfinished = [output for output in outputs if output.finished is None]

        def is_done(job: Job) -> bool:
            return all(
                by_stage[stage].finished is not None or file in by_stage[stage].done
                for stage, file in job.shards
                if stage in by_stage
            )

        todo = [job for job in jobs if not is_done(job)]
        ended = shards = written = 0
        spent: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))

        def report() -> None:
            if options.on_progress is not None:
                options.on_progress(Progress(stage=name, done=ended, total=len(todo), shards=shards, bytes=written))

        def add_seconds(seconds: Seconds) -> None:
            for section, (wall, cpu) in seconds.items():
                spent[section] = (spent[section][0] + wall, spent[section][1] + cpu)

        def on_done(job: Job, results: list[ShardResult], seconds: Seconds) -> None:
            nonlocal ended, shards, written
            add_seconds(seconds)
            for result in results:
                output = by_stage[result.stage]
                if output.finished is None:
                    output.record(result)
                shards += 1
                written += result.entry.bytes
            ended += 1
            report()

        report()
        if unfinished:
            if todo and before is not None:
                before(
                    lambda passed: run_jobs(
                        passed,
                        options.open_executor,
                        options.worker_count,
                        lambda job, results, seconds: add_seconds(seconds),
                        options.task_timeout,
                    )
                )
            run_jobs(todo, options.open_executor, options.worker_count, on_done, options.task_timeout)
            if check is not None:
                check()
            facts = run_facts(options, started)
            for output in unfinished:
                output.publish(facts)
        if options.on_profile is not None:
            profile = Profile(
                stage=name,
                seconds=time.time() - started,
                workers=options.worker_count,
                input_bytes=input_bytes,
                sections=dict(spent),
            )
            options.on_profile(profile)
    return [_result(output, nothing_to_do=output not in unfinished) for output in outputs]


def _result(output: Output, *, nothing_to_do: bool) -> StageResult:
    manifest = output.finished
    assert manifest is not None
    return StageResult(
        path=str(output.location),
        stage=manifest.metadata.stage,
        seed=manifest.metadata.seed,
        shards=len(manifest.shards),
        rows=manifest.rows,
        tokens=manifest.tokens,
        bytes=manifest.bytes,
        ledger=manifest.ledger.to_json(),
        history=tuple(ledger.to_json() for ledger in manifest.history),
        sha256=manifest.sha256,
        nothing_to_do=nothing_to_do,
    )


def run_facts(options: RunOptions, started: float) -> dict[str, Any]:
    """What is true of this run only."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started, 3),
        "argv": sys.argv,
        "workers": options.worker_count,
        "executor": options.executor if isinstance(options.executor, str) else type(options.executor).__name__,
        "resumed": options.resume,
        "host": platform.node(),
        "platform": platform.platform(),
        "versions": library_versions(),
    }
