"""Jobs of a verification: they read, find, and count, and write nothing."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING, Protocol

from clozeline.errors import JobError
from clozeline.run.stage import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clozeline.mask_function import MaskRule
    from clozeline.run.stage import RunOptions
    from clozeline.verification.findings import Check, Findings
    from clozeline.verification.tally import Tally


class Job(Protocol):
    """A picklable piece of a verification."""

    @property
    def bytes(self) -> int:
        """What it reads."""
        ...

    def __call__(self) -> tuple[Findings, Tally | None]: ...


def _call(job: Job) -> tuple[Findings, Tally | None]:
    return job()


def run_jobs(jobs: Sequence[Job], findings: Findings, run: RunOptions) -> Tally | None:
    """Runs every job; returns what they counted, added up in order.

    Args:
        findings: takes what they found.

    Raises:
        JobError: a worker died.
    """
    total: Tally | None = None
    size = 0
    try:
        with run.open_executor() as executor:
            for done, (job, (found, tally)) in enumerate(zip(jobs, executor.map(_call, jobs), strict=True), 1):
                findings.update(found)
                if total is None:
                    total = tally
                elif tally is not None:
                    total.update(tally)
                size += job.bytes
                if run.on_progress is not None:
                    run.on_progress(Progress(stage="verify", done=done, total=len(jobs), shards=done, bytes=size))
    except BrokenExecutor as error:
        raise JobError(
            "verify: a worker died (killed, or out of memory), so nothing is known; free memory or use fewer workers (-j)"
        ) from error
    return total


def label_checks(findings: Findings, rule: MaskRule) -> list[Check]:
    """The checks of labels and counts that hold with certainty."""
    checks = [
        findings.check("labels", "-100 or an id"),
        findings.check("specials", "neither special ids nor padding are selected"),
        findings.check("replacements", "the mask token, the token itself, or an id that may be drawn"),
        findings.check("stray_masks", "no mask token where nothing is selected"),
    ]
    if rule.selection == "exact" or rule.max_predictions is not None:
        checks.append(findings.check("row_counts", "every row has the number of selected tokens that it must"))
    if rule.unit != "token":
        checks.append(findings.check("whole_units", f"every {rule.unit} is selected whole or not at all"))
    return checks
