"""Where a loss comes from: the selected tokens in groups.

Shapes: R rows of L positions, G groups, V ids.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.evaluation.tally import Tally
from clozeline.evaluation.totals import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clozeline.evaluation.totals import Totals, Units

_BINS = 16
DECILES = 10


@dataclass(frozen=True, slots=True)
class Group:
    """Selected tokens that have something in common.

    Attributes:
        group: "mask", or the first and last value: "0-31", inclusive.
        selected_tokens: how many.
        loss: mean, nats; None for an empty group, NaN where any token's loss is not finite.
        accuracy, top5_accuracy: shares; None for an empty group.
    """

    group: str
    selected_tokens: int
    loss: float | None
    accuracy: float | None
    top5_accuracy: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def breakdowns(
    totals: Totals, rows: Units, documents: Units, special_ids: Sequence[int]
) -> dict[str, tuple[Group, ...]]:
    """All groupings; empty groups at either end are left out."""
    found: dict[str, tuple[Group, ...]] = {}
    if totals.by_action.count.any():
        found["action"] = _groups(totals.by_action, ACTIONS)
    length = totals.by_position.table.shape[1]
    if length:
        found["position"] = _binned(totals.by_position, np.arange(length))
    if len(rows):
        found["row_length"] = _binned(rows.tally, rows["tokens"])
        found["masks_in_row"] = _binned(rows.tally, rows.tally.count)
    if len(documents):
        found["document_length"] = _binned(documents.tally, documents["tokens"])
    if totals.by_token.count.any():
        deciles = frequency_deciles(totals.seen, special_ids)
        tally = totals.by_token.collected(deciles[: totals.by_token.table.shape[1]], DECILES)
        found["frequency_decile"] = _groups(tally, [str(d + 1) for d in range(DECILES)])
    return found


def frequency_deciles(seen: NDArray[np.int64], special_ids: Sequence[int]) -> NDArray[np.int64]:
    """The decile, 0 to 9, of each id.

    Ids are sorted by how often they occur in the rows, most frequent first (ties: smaller id first), and cut where a tenth,
    two tenths, ... of all occurrences is passed: decile 1 holds the few most frequent ids, decile 10 the many rare ones, each
    about a tenth of the text. An id belongs where the middle of its occurrences lies. Special ids occupy no share.

    Args:
        seen: int64 (V,), occurrences.
    """
    counts = seen.copy()
    counts[[i for i in special_ids if i < len(counts)]] = 0
    order = np.lexsort((np.arange(len(counts)), -counts))
    ends = np.cumsum(counts[order])
    middle = ends - counts[order] / 2
    deciles = np.empty(len(counts), np.int64)
    deciles[order] = np.minimum(middle / max(1, int(ends[-1])) * DECILES, DECILES - 1).astype(np.int64)
    return deciles


def _binned(tally: Tally, values: NDArray[np.int64]) -> tuple[Group, ...]:
    """Groups by a value of each fine group, in at most 16 bins of equal width."""
    used = values[tally.count > 0]
    if not len(used):
        return ()
    first, last = int(used.min()), int(used.max())
    width = math.ceil((last - first + 1) / _BINS)
    if first < width:
        first = 0
        width = math.ceil((last + 1) / _BINS)
    bins = (last - first) // width + 1
    place = np.clip((values - first) // width, 0, bins - 1)
    starts = [first + width * b for b in range(bins)]
    names = [str(s) if width == 1 else f"{s}-{min(s + width - 1, last)}" for s in starts]
    return _groups(tally.collected(place, bins), names)


def _groups(tally: Tally, names: Sequence[str]) -> tuple[Group, ...]:
    return tuple(
        Group(
            name,
            int(n),
            float(loss) if n else None,
            int(one) / int(n) if n else None,
            int(five) / int(n) if n else None,
        )
        for name, n, loss, one, five in zip(names, tally.count, tally.means(), tally.top1, tally.top5, strict=True)
    )
