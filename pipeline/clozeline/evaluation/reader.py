"""Batches as they come, checked and taken apart: what the model sees, which tokens are scored, and which rows they are in.

Shapes: B rows of L positions; N selected tokens, D documents and S sequences in them; T positions that are not padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import DataError
from clozeline.evaluation.sequences import Sequences, documents_of, whole_rows
from clozeline.mask_function import IGNORE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.store.manifest import TokenizerFacts


@dataclass(frozen=True, slots=True)
class Selected:
    """The selected tokens of a batch.

    Attributes:
        rows, positions: int64 (N,), where: row within the batch, position within the row.
        labels, inputs: int64 (N,), the original ids and what stands in their place.
        sequences: int64 (N,), index into the batch's sequences.
        documents: int64 (N,), index into the batch's documents; None where rows come without boundaries.
    """

    rows: NDArray[np.int64]
    positions: NDArray[np.int64]
    labels: NDArray[np.int64]
    inputs: NDArray[np.int64]
    sequences: NDArray[np.int64]
    documents: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class RowBatch:
    """A batch.

    Attributes:
        inputs: (B, L), what the model is called with: int64 `input_ids`, bool `attention_mask`, and int64 `token_type_ids` where
            they come along.
        sequences: the stretches of rows that the model reads, each on its own: rows without their padding, or documents.
        identity: int64 (4, B): masking, shard, row, tokens that are not padding.
        documents: int64 (5, D): masking, shard, row, document within the row, its tokens; None without boundaries.
        original: int64 (T,), the original ids of all positions that are not padding.
    """

    inputs: dict[str, NDArray[Any]]
    sequences: Sequences
    identity: NDArray[np.int64]
    documents: NDArray[np.int64] | None
    original: NDArray[np.int64]
    selected: Selected


class BatchReader:
    """Makes checked arrays of batches.

    Args:
        every_token: select each token of the text, whatever the labels say.
        apart: each document of a row is a sequence of its own.
        vocabulary_size: ids that the model knows.
        first_row: number of the first row, where rows come without identity.
    """

    def __init__(
        self,
        tokenizer: TokenizerFacts | None,
        *,
        every_token: bool,
        vocabulary_size: int,
        first_row: int,
        apart: bool = False,
    ) -> None:
        self._special = np.array(tokenizer.special_ids if tokenizer is not None else (), np.int64)
        self._mask_id = -1 if tokenizer is None else tokenizer.mask_id
        self._every_token, self._apart = every_token, apart
        self._vocabulary_size, self._next = vocabulary_size, first_row

    def read(self, raw: dict[str, Any]) -> RowBatch:
        """Takes a batch apart; rows with the number -1, which only fill a batch up, are left out.

        Raises:
            DataError: no labels, no boundaries where documents are to be told apart, or an id that the model does not know.
        """
        batch = {name: np.asarray(value) for name, value in raw.items()}
        if "row" in batch and (batch["row"] < 0).any():
            batch = {name: values[batch["row"] >= 0] for name, values in batch.items()}
        ids = batch["input_ids"].astype(np.int64, copy=False)
        attention, labels = batch.get("attention_mask"), batch.get("labels")
        real = np.ones(ids.shape, bool) if attention is None else attention.astype(bool)
        identity = self._identify(batch, real)
        original = ids if labels is None else np.where(labels == IGNORE, ids, labels)
        if self._every_token:
            ids = original
            chosen = real & ~np.isin(ids, self._special)
        elif labels is None:
            raise DataError("the rows have no labels, so nothing is selected; mask them, or give --mask-on-the-fly")
        else:
            chosen = labels != IGNORE
        self._check(ids, original, identity)
        rows, positions = np.nonzero(chosen)
        there = np.full(len(rows), self._mask_id) if self._every_token else ids[rows, positions]
        lengths = batch.get("document_lengths")
        documents, document = (None, None) if lengths is None else _documents(lengths, identity, rows, positions)
        inputs = {"input_ids": ids, "attention_mask": real}
        if "token_type_ids" in batch:
            inputs["token_type_ids"] = batch["token_type_ids"].astype(np.int64, copy=False)
        if not self._apart:
            sequences, sequence = whole_rows(real | chosen), rows
        elif lengths is None or document is None:
            raise DataError("the rows do not tell where their documents begin: pack with --boundaries")
        else:
            sequences, sequence = documents_of(lengths), document
        selected = Selected(rows, positions, original[rows, positions], there, sequence, document)
        return RowBatch(inputs, sequences, identity, documents, original[real], selected)

    def _identify(self, batch: dict[str, NDArray[Any]], real: NDArray[np.bool_]) -> NDArray[np.int64]:
        identity = np.zeros((4, len(real)), np.int64)
        identity[0] = batch.get("masking", 0)
        identity[1] = batch.get("shard", 0)
        identity[2] = batch.get("row", np.arange(self._next, self._next + len(real)))
        identity[3] = real.sum(axis=1)
        self._next += len(real)
        return identity

    def _check(self, ids: NDArray[np.int64], original: NDArray[np.int64], identity: NDArray[np.int64]) -> None:
        for values in (ids, original):
            bad = (values >= self._vocabulary_size) | (values < 0)
            if bad.any():
                row, position = (int(x[0]) for x in np.nonzero(bad))
                raise DataError(
                    f"row {identity[2, row]} of shard {identity[1, row]}, position {position}: id {values[row, position]}; the "
                    f"model has {self._vocabulary_size:,} ids: the rows were made with another vocabulary"
                )


def _documents(
    lengths: NDArray[Any], identity: NDArray[np.int64], rows: NDArray[np.int64], positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The documents of a batch, (5, D), and for each selected token the index of its own, (N,).

    Args:
        lengths: (B, S), tokens of each document in the row, filled up with 0.
    """
    row, place = np.nonzero(lengths)
    documents = np.concatenate([identity[:3, row], [place, lengths[row, place]]])
    # Documents end at the cumulated lengths: [3, 2, 0] -> [3, 5, 5], and position 3 is behind one end.
    ends = np.cumsum(lengths, axis=1, dtype=np.int64)
    outside = np.flatnonzero(positions >= ends[rows, -1])
    if len(outside):
        masking, shard, number = identity[:3, rows[outside[0]]].tolist()
        raise DataError(
            f"row {number} of shard {shard}, masking {masking}: position {positions[outside[0]]} is selected and belongs to no "
            "document; make the data again"
        )
    before = np.concatenate([[0], np.cumsum((lengths > 0).sum(axis=1))[:-1]])
    return documents, before[rows] + (positions[:, None] >= ends[rows]).sum(axis=1)
