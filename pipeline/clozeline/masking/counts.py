"""How often each id stands in a packed data set: what replacements by frequency are drawn by."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from clozeline.errors import JobError
from clozeline.run.stage import RunOptions
from clozeline.store.dataset import Data
from clozeline.store.masks import TokenCounts
from clozeline.store.shards import TokenShard

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from clozeline.store.location import Location
    from clozeline.store.manifest import ShardEntry

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class CountJob:
    """Counts the ids of one packed shard."""

    location: Location
    entry: ShardEntry
    vocabulary_size: int

    def __call__(self) -> NDArray[np.int64]:
        total = np.zeros(self.vocabulary_size, np.int64)
        for columns in TokenShard(self.location, self.entry).batches("input_ids"):
            total += np.bincount(columns["input_ids"].reshape(-1), minlength=self.vocabulary_size)
        return total


def token_counts(packed: str | os.PathLike[str], run: RunOptions | None = None) -> TokenCounts:
    """Counts every id of a packed data set, special ids and padding included.

    Raises:
        DataError: `packed` is no finished packed data set, or damaged.
    """
    data, run = Data(packed, "packing"), run or RunOptions()
    facts = data.metadata.tokenizer
    assert facts is not None
    jobs = [
        CountJob(location=data.location, entry=entry, vocabulary_size=facts.vocabulary_size)
        for entry in data.manifest.shards
    ]
    total = np.zeros(facts.vocabulary_size, np.int64)
    for counts in results_in_order(jobs, run):
        total += counts
    return TokenCounts(total)


def results_in_order(jobs: Sequence[Callable[[], Result]], run: RunOptions) -> Iterator[Result]:
    """What jobs that write nothing give.

    Raises:
        JobError: a worker died.
    """
    try:
        with run.open_executor() as executor:
            yield from executor.map(_call, jobs)
    except BrokenExecutor as error:
        raise JobError(
            "mask: a worker died while rows were counted (killed, or out of memory); free memory or use fewer workers (-j)"
        ) from error


def _call(job: Callable[[], Result]) -> Result:
    return job()
