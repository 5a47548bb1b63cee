"""The rows that a model does worst on, token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.evaluation.evaluate import make_scorer
from clozeline.evaluation.reader import BatchReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from clozeline.evaluation.evaluate import EvaluateOptions
    from clozeline.evaluation.result import EvaluateResult
    from clozeline.store.manifest import TokenizerFacts


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token of the text.

    Attributes:
        token: the original.
        seen: what the model saw in its place.
        loss: nats; None where it was not selected.
    """

    token: str
    seen: str
    loss: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstRow:
    """A row, without its padding."""

    masking: int
    shard: int
    row: int
    loss: float
    tokens: tuple[ScoredToken, ...]


def worst_rows(result: EvaluateResult, count: int) -> list[tuple[int, int, int]]:
    """(masking, shard, row) of the rows with the highest mean loss, those without a finite loss first."""
    rows = result.row_scores
    means = rows.tally.means()
    means[rows.tally.count == 0] = -1.0
    order = np.lexsort((np.arange(len(means)), -np.where(np.isnan(means), np.inf, means)))[:count]
    return [(int(rows["masking"][i]), int(rows["shard"][i]), int(rows["row"][i])) for i in order if means[i] != -1.0]


def score_rows(
    model: nn.Module,
    rows: Iterable[dict[str, Any]],
    options: EvaluateOptions,
    tokenizer: TokenizerFacts | None,
    tokens: dict[int, str],
) -> list[WorstRow]:
    """Scores rows again, keeping each token.

    Args:
        model: in evaluation mode.
        rows: batches of one row each, as `evaluate` takes them.
        tokens: id to token.
    """
    scorer = make_scorer(model, options, tokenizer)
    reader = BatchReader(
        tokenizer,
        every_token=options.pseudo_likelihood,
        vocabulary_size=scorer.vocabulary_size,
        first_row=0,
        apart=options.documents_apart,
    )
    scored = []
    for raw in rows:
        batch = reader.read(raw)
        losses = scorer.launch(batch).scores().loss
        at = dict(zip(batch.selected.positions.tolist(), range(len(losses)), strict=True))
        seen = batch.inputs["input_ids"][0, : len(batch.original)].tolist()
        masking, shard, row = batch.identity[:3, 0].tolist()
        scored.append(
            WorstRow(
                masking=masking,
                shard=shard,
                row=row,
                loss=float(losses.mean()),
                tokens=tuple(
                    ScoredToken(
                        tokens.get(i, f"[{i}]"), tokens.get(s, f"[{s}]"), float(losses[at[t]]) if t in at else None
                    )
                    for t, (i, s) in enumerate(zip(batch.original.tolist(), seen, strict=True))
                ),
            )
        )
    return scored
