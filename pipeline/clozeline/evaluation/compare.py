"""Two models on the same masked rows: the difference of their losses, paired row by row.

Rows differ much more than models do; pairing takes the rows' part out of the standard error.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import DataError
from clozeline.evaluation.interval import Z95, by_cluster, ratio_standard_error

if TYPE_CHECKING:
    from clozeline.evaluation.result import EvaluateResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The second model's loss against the first's.

    Attributes:
        model, model_sha256: the second model.
        loss, accuracy: the second model's.
        difference: its loss - the first model's, nats: negative where it is better. None where nothing was selected.
        standard_error, interval: of the difference: `ratio_standard_error` of the rows' differences, and 95 %.
        better_rows: share of the rows where its loss is lower; equal rows count half.
    """

    model: str
    model_sha256: str
    loss: float | None
    accuracy: float | None
    difference: float | None
    standard_error: float | None
    interval: tuple[float, float] | None
    better_rows: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(first: EvaluateResult, second: EvaluateResult, model: str, model_sha256: str) -> Comparison:
    """The paired difference of two results on the same rows and masks.

    Args:
        model, model_sha256: name and digest of the second model.

    Raises:
        DataError: the results are of different rows or masks.
    """
    a, b = first.row_scores, second.row_scores
    keys_a, keys_b = (np.stack([*r.identity[:3], r.tally.count]) for r in (a, b))
    if keys_a.shape != keys_b.shape or (keys_a != keys_b).any():
        raise DataError(
            "the two results are of different rows or masks and cannot be compared; evaluate both on the same"
        )
    difference = b.tally.sums() - a.tally.sums()
    clusters, counts = by_cluster(keys_a[1:3], difference, a.tally.count) if len(a) else (difference, a.tally.count)
    mean = None if first.loss is None or second.loss is None else second.loss - first.loss
    error = None if mean is None else ratio_standard_error(clusters, counts.astype(np.int64))
    return Comparison(
        model=model,
        model_sha256=model_sha256,
        loss=second.loss,
        accuracy=second.accuracy,
        difference=mean,
        standard_error=error,
        interval=None if mean is None or error is None else (mean - Z95 * error, mean + Z95 * error),
        better_rows=float(np.mean((difference < 0) + 0.5 * (difference == 0))) if len(a) else None,
    )
