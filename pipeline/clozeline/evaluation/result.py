"""What an evaluation says: the loss with its uncertainty, and where it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.evaluation.breakdown import breakdowns
from clozeline.evaluation.interval import Z95, by_cluster, ratio_standard_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clozeline.evaluation.breakdown import Group
    from clozeline.evaluation.totals import Totals, Units


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateResult:
    """A model's loss on masked tokens.

    Losses are None where nothing was selected and NaN where a token's loss is NaN or infinite (`not_finite_rows` says where).

    Attributes:
        loss: mean of -log P(original token) over all selected tokens, in nats.
        loss_bits: the same in bits.
        perplexity: exp(loss).
        standard_error, interval: of `loss`, clustered by row (`interval.ratio_standard_error`), and loss -+ 1.96 standard errors.
        accuracy, top5_accuracy: share of the selected tokens that are the model's first choice, or among its first five.
        selected_tokens, tokens, rows: tokens predicted, tokens that are not padding, rows read; all maskings together.
        maskings: for each copy or epoch its loss, in order; `masking_spread` is their standard deviation (n - 1), None for one.
        by: groups of the selected tokens: "action", "position", "row_length", "masks_in_row", "frequency_decile",
            and with document boundaries "document_length".
        not_finite_tokens, not_finite_rows: tokens without a finite loss, and the first 20 rows that hold them.
        context: what the model saw around a token: its "row", or its "document" only.
        head: where the vocabulary head was computed: "selected positions" or "every position".
        device, dtype, batch_rows, processes: how; `batch_rows` is rows of full length at once, after halving for memory.
        padding_share: of the positions computed in this run.
        seconds, rows_per_second, tokens_per_second: of this run, all processes together; rows that `resumed_rows` counts were
            done before and are not in the rates.
        row_scores: every row, in the order of (masking, shard, row); not in the JSON.
        document_scores: every document of every row, where boundaries are known; not in the JSON.
    """

    loss: float | None
    loss_bits: float | None
    perplexity: float | None
    standard_error: float | None
    interval: tuple[float, float] | None
    accuracy: float | None
    top5_accuracy: float | None
    selected_tokens: int
    tokens: int
    rows: int
    maskings: tuple[float | None, ...]
    masking_spread: float | None
    by: dict[str, tuple[Group, ...]]
    not_finite_tokens: int
    not_finite_rows: tuple[dict[str, int], ...]
    context: str
    head: str
    device: str
    dtype: str
    batch_rows: int
    padding_share: float
    processes: int
    seconds: float
    rows_per_second: float
    tokens_per_second: float
    resumed_rows: int
    row_scores: Units = field(repr=False, compare=False)
    document_scores: Units = field(repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; NaN and infinity, which JSON has not, become null."""
        body = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("row_scores", "document_scores")}
        body["by"] = {name: [group.to_json() for group in groups] for name, groups in self.by.items()}
        cleaned: dict[str, Any] = _finite(body)
        return cleaned


def summarise(
    totals: Totals, special_ids: Sequence[int], *, seconds: float, resumed_rows: int, **how: Any
) -> EvaluateResult:
    """The result of what was found.

    Args:
        special_ids: ids that never count as tokens of the text.
        how: the fields of the result that say how it was done.

    Raises:
        DataError: a row was scored twice.
    """
    rows, documents = totals.rows.in_order(), totals.documents.in_order()
    tally = rows.tally
    total = tally.total()
    selected = int(total.count[0])
    loss = float(total.means()[0]) if selected else None
    sums, counts = (
        by_cluster(rows.identity[1:3], tally.sums(), tally.count) if len(rows) else (np.zeros(0), np.zeros(0))
    )
    error = ratio_standard_error(sums, counts.astype(np.int64))
    numbers, place = np.unique(rows["masking"], return_inverse=True)
    by_masking = tally.collected(place, len(numbers))
    maskings = tuple(float(m) if n else None for m, n in zip(by_masking.means(), by_masking.count, strict=True))
    bad = np.flatnonzero(tally.not_finite)
    done = len(rows) - resumed_rows
    return EvaluateResult(
        loss=loss,
        loss_bits=None if loss is None else loss / math.log(2),
        perplexity=None if loss is None else _exp(loss),
        standard_error=error,
        interval=None if error is None or loss is None else (loss - Z95 * error, loss + Z95 * error),
        accuracy=int(total.top1[0]) / selected if selected else None,
        top5_accuracy=int(total.top5[0]) / selected if selected else None,
        selected_tokens=selected,
        tokens=totals.tokens,
        rows=len(rows),
        maskings=maskings,
        masking_spread=_spread(maskings),
        by=breakdowns(totals, rows, documents, special_ids),
        not_finite_tokens=int(total.not_finite[0]),
        not_finite_rows=tuple(
            {**{name: int(rows[name][i]) for name in ("masking", "shard", "row")}, "tokens": int(tally.not_finite[i])}
            for i in bad[:20]
        ),
        seconds=seconds,
        rows_per_second=done / seconds,
        tokens_per_second=totals.tokens * (done / max(1, len(rows))) / seconds,
        resumed_rows=resumed_rows,
        row_scores=rows,
        document_scores=documents,
        **how,
    )


def _exp(loss: float) -> float:
    return math.exp(loss) if not loss > 709 else math.inf


def _spread(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.std(known, ddof=1)) if len(known) > 1 else None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
