"""One run of a stage: takes its outputs, runs the jobs that are not done yet, publishes."""

from __future__ import annotations

import contextlib
import platform
import sys
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError
from clozeline.run.executors import make_executor, usable_cores
from clozeline.run.jobs import Job, run_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    RunPass = Callable[[Sequence[Job]], None]

    from clozeline.store.output import Output, ShardResult


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
        workers: processes; None for every usable core.
        executor: "processes", "serial", or any `concurrent.futures.Executor` (left open).
        resume: finish what an earlier run of the same work left.
        force: replace what is there.
        task_timeout: seconds that one job may take in a worker process; None for as long as it likes. A job that takes longer is
            ended and tried once more, alone.
        on_progress: called in the calling thread.
        on_warning: told of what looks wrong but may be meant.
    """

    workers: int | None = None
    executor: str | Executor = "processes"
    resume: bool = False
    force: bool = False
    task_timeout: float | None = None
    on_progress: Callable[[Progress], None] | None = None
    on_warning: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"workers is {self.workers}: at least 1 is needed")
        if self.task_timeout is not None and not self.task_timeout > 0:
            raise ConfigError(f"task_timeout is {self.task_timeout}: a positive number of seconds is needed")
        if self.resume and self.force:
            raise ConfigError("resume and force contradict each other: one keeps what is there, the other removes it")

    @contextlib.contextmanager
    def open_executor(self, workers: int | None = None) -> Iterator[Executor]:
        """The executor, with that many workers where it is ours to start."""
        if not isinstance(self.executor, str):
            yield self.executor
            return
        # One worker needs no process of its own; what killed one before must not be tried in this process.
        kind = "serial" if workers is None and self.worker_count == 1 else self.executor
        with make_executor(kind, workers or self.worker_count) as executor:
            yield executor

    @property
    def worker_count(self) -> int:
        return self.workers or usable_cores()

    def warn(self, message: str) -> None:
        if self.on_warning is not None:
            self.on_warning(message)


def run_stage(
    name: str,
    outputs: Sequence[Output],
    jobs: Sequence[Job],
    options: RunOptions,
    *,
    before: Callable[[RunPass], None] | None = None,
    check: Callable[[], None] | None = None,
) -> list[StageResult]:
    """Makes the outputs by running the jobs; returns what they are, in order.

    Args:
        name: of the stage, for progress.
        before: called when the outputs are taken and work is to be done, with a function that runs further jobs.
        check: called before publication when all jobs are done; may raise.

    Outputs that are finished already (`resume`) cost nothing. A job runs when any of its shards is missing.
    """
    by_stage = {output.metadata.stage: output for output in outputs}
    started = time.time()
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

        def report() -> None:
            if options.on_progress is not None:
                options.on_progress(Progress(stage=name, done=ended, total=len(todo), shards=shards, bytes=written))

        def on_done(job: Job, results: list[ShardResult]) -> None:
            nonlocal ended, shards, written
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
                        lambda job, results: None,
                        options.task_timeout,
                    )
                )
            run_jobs(todo, options.open_executor, options.worker_count, on_done, options.task_timeout)
            if check is not None:
                check()
            facts = run_facts(options, started)
            for output in unfinished:
                output.publish(facts)
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
    versions = {"python": platform.python_version()}
    for package in ("clozeline", "numpy", "pyarrow", "tokenizers", "nanotoken", "gigatoken"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started, 3),
        "argv": sys.argv,
        "workers": options.worker_count,
        "executor": options.executor if isinstance(options.executor, str) else type(options.executor).__name__,
        "resumed": options.resume,
        "host": platform.node(),
        "platform": platform.platform(),
        "versions": versions,
    }
