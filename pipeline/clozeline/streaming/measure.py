"""How fast a stream gives batches, and the digest of the first rows: what `clozeline stream` prints."""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from clozeline.streaming.loader import TokenLoader
    from clozeline.streaming.tensors import Tensors

DIGEST_ROWS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One pass, or the part of it that was asked for.

    Attributes:
        rows, batches, tokens: given out by this rank; tokens are positions, padding included.
        bytes: of the tensors given out.
        seconds: from the request for the first batch to the last batch.
        first_batch_seconds: until the first one came.
        rows_per_second, bytes_per_second: over all of `seconds`.
        epoch_batches, dropped, padded: batches of a whole epoch on each rank; rows of an epoch that no rank sees; padding rows.
        digest: sha256 of the first 64 rows (fewer where there are fewer), see `rows_digest`; equal for equal rows in equal order.
    """

    rows: int
    batches: int
    tokens: int
    bytes: int
    seconds: float
    first_batch_seconds: float
    rows_per_second: float
    bytes_per_second: float
    epoch_batches: int
    dropped: int
    padded: int
    digest: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    loader: TokenLoader, *, limit_rows: int | None = None, on_batch: Callable[[int], None] | None = None
) -> Measurement:
    """Runs through an epoch and does nothing with it.

    Args:
        limit_rows: stop after so many.
        on_batch: called with the rows of each batch.
    """
    rows = batches = tokens = size = 0
    first_seconds = 0.0
    head: list[Tensors] = []
    headed = 0
    started = time.perf_counter()
    for batch in loader:
        count = len(batch["input_ids"])
        if not batches:
            first_seconds = time.perf_counter() - started
        if headed < DIGEST_ROWS:
            head.append({name: values[: DIGEST_ROWS - headed] for name, values in batch.items()})
            headed += count
        batches, rows, tokens = batches + 1, rows + count, tokens + batch["input_ids"].numel()
        size += sum(values.nbytes for values in batch.values())
        if on_batch is not None:
            on_batch(count)
        if limit_rows is not None and rows >= limit_rows:
            break
    seconds = time.perf_counter() - started
    plan = loader.stream.plan
    return Measurement(
        rows=rows,
        batches=batches,
        tokens=tokens,
        bytes=size,
        seconds=round(seconds, 6),
        first_batch_seconds=round(first_seconds, 6),
        rows_per_second=round(rows / seconds, 1),
        bytes_per_second=round(size / seconds, 1),
        epoch_batches=plan.batches,
        dropped=plan.dropped,
        padded=plan.padded,
        digest=rows_digest(head),
    )


def rows_digest(batches: list[Tensors]) -> str:
    """sha256 (hex) over rows, one after another: of each its columns by name, as little-endian int64."""
    digest = hashlib.sha256()
    for batch in batches:
        columns = [values.numpy().astype("<i8") for _, values in sorted(batch.items())]
        for i in range(len(columns[0])):
            for values in columns:
                digest.update(values[i].tobytes())
    return digest.hexdigest()
