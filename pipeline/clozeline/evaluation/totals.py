"""What an evaluation has found so far: tallies over tokens and a line for each row, to be merged, saved and summed up.

Shapes: B rows of L positions, N selected tokens in them, R rows so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import DataError
from clozeline.evaluation.tally import Tally, TokenScores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

ACTIONS = ("mask", "random", "keep")
IDENTITY = ("masking", "shard", "row", "tokens")


@dataclass(frozen=True, slots=True)
class Selected:
    """The selected tokens of a batch.

    Attributes:
        rows, positions: int64 (N,), where: row within the batch, position within the row.
        labels, inputs: int64 (N,), the original ids and what stands in their place.
    """

    rows: NDArray[np.int64]
    positions: NDArray[np.int64]
    labels: NDArray[np.int64]
    inputs: NDArray[np.int64]


class Totals:
    """Sums over everything scored.

    Attributes:
        by_action, by_position, by_token: tallies over mask, random, keep (empty where the mask id is not known), over
            positions in the row, and over original ids.
        seen: int64 (V,), how often each original id occurs among all positions that are not padding.
    """

    def __init__(self) -> None:
        self.by_action, self.by_position, self.by_token = Tally(len(ACTIONS)), Tally(0), Tally(0)
        self.seen = np.zeros(0, np.int64)
        self._identities: list[NDArray[np.int64]] = []
        self._tallies: list[NDArray[np.int64]] = []
        self.rows = self.tokens = 0

    def add(
        self,
        identity: NDArray[np.int64],
        original: NDArray[np.int64],
        selected: Selected,
        scores: TokenScores,
        mask_id: int | None,
    ) -> None:
        """Adds a batch.

        Args:
            identity: int64 (4, B): masking, shard, row, and tokens that are not padding, of each row.
            original: int64 (T,), the original ids of all positions that are not padding.
        """
        by_row = Tally(identity.shape[1])
        by_row.add(selected.rows, scores)
        self._identities.append(identity)
        self._tallies.append(by_row.table)
        self.rows += identity.shape[1]
        self.tokens += len(original)
        self.by_position.add(selected.positions, scores)
        self.by_token.add(selected.labels, scores)
        if mask_id is not None:
            masked, kept = selected.inputs == mask_id, selected.inputs == selected.labels
            self.by_action.add(np.where(masked, 0, np.where(kept, 2, 1)), scores)
        self.seen = _added(self.seen, np.bincount(original))

    def row_table(self) -> tuple[NDArray[np.int64], Tally]:
        """Every row in the order of (masking, shard, row): its identity, int64 (4, R), and its tally.

        Raises:
            DataError: a row was scored twice.
        """
        tally = Tally(0)
        if not self._identities:
            return np.zeros((len(IDENTITY), 0), np.int64), tally
        identity, table = np.concatenate(self._identities, axis=1), np.concatenate(self._tallies, axis=1)
        order = np.lexsort(identity[2::-1])
        identity = identity[:, order]
        twice = np.flatnonzero((np.diff(identity[:3], axis=1) == 0).all(axis=0))
        if len(twice):
            masking, shard, row = identity[:3, twice[0]].tolist()
            raise DataError(
                f"row {row} of shard {shard} was scored twice in masking {masking} ({len(twice):,} repetitions in all): the "
                "batches repeat rows; give each row once"
            )
        tally.table = table[:, order]
        return identity, tally

    def state(self) -> dict[str, NDArray[np.int64]]:
        """Everything, as arrays: for other processes and for files."""
        identity = (
            np.concatenate(self._identities, axis=1) if self._identities else np.zeros((len(IDENTITY), 0), np.int64)
        )
        tallies = np.concatenate(self._tallies, axis=1) if self._tallies else Tally(0).table
        return {
            "by_action": self.by_action.table,
            "by_position": self.by_position.table,
            "by_token": self.by_token.table,
            "seen": self.seen,
            "identity": identity,
            "by_row": tallies,
            "tokens": np.array([self.tokens]),
        }

    def merge(self, state: Mapping[str, NDArray[np.int64]]) -> None:
        """Adds what another process, or an earlier run, has found."""
        self.by_action.merge(state["by_action"])
        self.by_position.merge(state["by_position"])
        self.by_token.merge(state["by_token"])
        self.seen = _added(self.seen, state["seen"])
        self._identities.append(state["identity"])
        self._tallies.append(state["by_row"])
        self.rows += state["identity"].shape[1]
        self.tokens += int(state["tokens"][0])


def _added(a: NDArray[np.int64], b: NDArray[Any]) -> NDArray[np.int64]:
    if len(a) < len(b):
        a = np.pad(a, (0, len(b) - len(a)))
    a[: len(b)] += b
    return a
