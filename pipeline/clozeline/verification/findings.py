"""What a verification found: named checks, each with what was seen and every problem's place."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

SHOWN = 5  # problems of one check that are spelled out


@dataclass(frozen=True, kw_only=True, slots=True)
class Statistic:
    """One test of a number that a right data set holds only by chance.

    Attributes:
        expected, observed: what is compared.
        low, high: interval that `observed` of a right data set leaves as rarely as the test rejects.
        p_value: chance that a right data set lies at least as far off.
        limit: the test rejects below this: an error rate of 1 in 10,000 divided by the number of tests.
    """

    expected: float
    observed: float
    low: float | None
    high: float | None
    p_value: float
    limit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that was checked.

    Attributes:
        name: by which documentation and tests know it.
        ok: False when something is wrong.
        detail: what was seen, in words.
        problems: the first few problems, each with its file and row.
        count: of all problems.
        statistic: the figures, where the check is one of chance.
    """

    name: str
    ok: bool
    detail: str
    problems: tuple[str, ...] = ()
    count: int = 0
    statistic: Statistic | None = None


@dataclass(slots=True)
class Findings:
    """Problems by check, gathered piece by piece; picklable, and bounded however many problems there are."""

    counts: dict[str, int] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)

    def add(self, check: str, problem: str, count: int = 1) -> None:
        self.counts[check] = self.counts.get(check, 0) + count
        shown = self.problems.setdefault(check, [])
        if len(shown) < SHOWN:
            shown.append(problem)

    def update(self, other: Findings) -> None:
        for check, problems in other.problems.items():
            for problem in problems:
                self.add(check, problem, 0)
            self.counts[check] += other.counts[check]

    def check(self, name: str, detail: str) -> Check:
        """The outcome of one check."""
        count = self.counts.get(name, 0)
        return Check(name=name, ok=not count, detail=detail, problems=tuple(self.problems.get(name, [])), count=count)


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyResult:
    """The verdict on a data set.

    Attributes:
        path: what was verified.
        stage: "sharding", "packing", "masking", or "foreign".
        ok: every check holds.
        rows, tokens, bytes: what was looked at; rows are documents for text.
        seed: of the masks, None where there is none or it is not known.
        checks: in the order of the documentation.
        note: what had to be assumed.
    """

    path: str
    stage: str
    ok: bool
    rows: int
    tokens: int
    bytes: int
    seed: int | None
    checks: tuple[Check, ...]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
