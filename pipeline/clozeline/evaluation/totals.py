"""What an evaluation has found so far: tallies over tokens and a line for each row, to be merged, saved and summed up.

Shapes: B rows of L positions, N selected tokens in them, U rows or documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import DataError
from clozeline.evaluation.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clozeline.evaluation.reader import RowBatch
    from clozeline.evaluation.tally import TokenScores

ACTIONS = ("mask", "random", "keep")
ROW = ("masking", "shard", "row", "tokens")
DOCUMENT = ("masking", "shard", "row", "document", "tokens")


class Units:
    """A tally for each of many rows or documents.

    Args:
        names: of the identity's columns; all but the last tell units apart, the last is the number of tokens.
    """

    def __init__(
        self, names: tuple[str, ...], identity: NDArray[np.int64] | None = None, tally: Tally | None = None
    ) -> None:
        self.names = names
        self._identities = [np.zeros((len(names), 0), np.int64) if identity is None else identity]
        self._tables = [Tally(0).table if tally is None else tally.table]

    def append(self, identity: NDArray[np.int64], table: NDArray[np.int64]) -> None:
        """More units: int64 (len(names), U), and a tally's table of U groups."""
        self._identities.append(identity)
        self._tables.append(table)

    def __len__(self) -> int:
        return sum(identity.shape[1] for identity in self._identities)

    @property
    def identity(self) -> NDArray[np.int64]:
        self._identities = [np.concatenate(self._identities, axis=1)]
        return self._identities[0]

    @property
    def tally(self) -> Tally:
        tally = Tally(0)
        tally.table = np.concatenate(self._tables, axis=1)
        self._tables = [tally.table]
        return tally

    def __getitem__(self, name: str) -> NDArray[np.int64]:
        """A column of the identity, int64 (U,)."""
        column: NDArray[np.int64] = self.identity[self.names.index(name)]
        return column

    def in_order(self) -> Units:
        """Sorted by identity.

        Raises:
            DataError: a unit is there twice.
        """
        keys = len(self.names) - 1
        order = np.lexsort(self.identity[keys - 1 :: -1])
        identity, tally = self.identity[:, order], self.tally
        twice = np.flatnonzero((np.diff(identity[:keys], axis=1) == 0).all(axis=0))
        if len(twice):
            masking, shard, row = identity[:3, twice[0]].tolist()
            raise DataError(
                f"row {row} of shard {shard} was scored twice in masking {masking} ({len(twice):,} repetitions in all): the "
                "batches repeat rows; give each row once"
            )
        tally.table = tally.table[:, order]
        return Units(self.names, identity, tally)

    def columns(self) -> dict[str, NDArray[Any]]:
        """As a table: the identity, then `selected`, `loss_sum` and `loss` (nats), `top1`, `top5`, `not_finite` (tokens)."""
        tally = self.tally
        return {
            **{name: self[name] for name in self.names},
            "selected": tally.count,
            "loss_sum": tally.sums(),
            "loss": tally.means(),
            "top1": tally.top1,
            "top5": tally.top5,
            "not_finite": tally.not_finite,
        }


class Totals:
    """Sums over everything scored.

    Attributes:
        by_action, by_position, by_token: tallies over mask, random, keep (empty where the mask id is not known), over
            positions in the row, and over original ids.
        seen: int64 (V,), how often each original id occurs among all positions that are not padding.
        rows, documents: each row's tally, and where rows come with `document_lengths` that of each document in them.
        tokens: positions that are not padding.
    """

    def __init__(self) -> None:
        self.by_action, self.by_position, self.by_token = Tally(len(ACTIONS)), Tally(0), Tally(0)
        self.seen = np.zeros(0, np.int64)
        self.rows, self.documents = Units(ROW), Units(DOCUMENT)
        self.tokens = 0

    def add(self, batch: RowBatch, scores: TokenScores, mask_id: int | None) -> None:
        """Adds a batch; `scores` are of its selected tokens."""
        selected = batch.selected
        by_row = Tally(batch.identity.shape[1])
        by_row.add(selected.rows, scores)
        self.rows.append(batch.identity, by_row.table)
        if batch.documents is not None and selected.documents is not None:
            by_document = Tally(batch.documents.shape[1])
            by_document.add(selected.documents, scores)
            self.documents.append(batch.documents, by_document.table)
        self.tokens += len(batch.original)
        self.by_position.add(selected.positions, scores)
        self.by_token.add(selected.labels, scores)
        if mask_id is not None:
            masked, kept = selected.inputs == mask_id, selected.inputs == selected.labels
            self.by_action.add(np.where(masked, 0, np.where(kept, 2, 1)), scores)
        self.seen = _added(self.seen, np.bincount(batch.original))

    def state(self) -> dict[str, NDArray[np.int64]]:
        """Everything, as arrays: for other processes and for files."""
        return {
            "by_action": self.by_action.table,
            "by_position": self.by_position.table,
            "by_token": self.by_token.table,
            "seen": self.seen,
            "rows": self.rows.identity,
            "by_row": self.rows.tally.table,
            "documents": self.documents.identity,
            "by_document": self.documents.tally.table,
            "tokens": np.array([self.tokens]),
        }

    def merge(self, state: Mapping[str, NDArray[np.int64]]) -> None:
        """Adds what another process, or an earlier run, has found."""
        self.by_action.merge(state["by_action"])
        self.by_position.merge(state["by_position"])
        self.by_token.merge(state["by_token"])
        self.seen = _added(self.seen, state["seen"])
        self.rows.append(state["rows"], state["by_row"])
        self.documents.append(state["documents"], state["by_document"])
        self.tokens += int(state["tokens"][0])


def _added(a: NDArray[np.int64], b: NDArray[Any]) -> NDArray[np.int64]:
    if len(a) < len(b):
        a = np.pad(a, (0, len(b) - len(a)))
    a[: len(b)] += b
    return a
