"""Transforms that keep the documents of a row apart, for data packed with `boundaries`.

Without them a token attends to every document of its row. Each of the three is enough, for another kind of model: positions that
begin anew (models that find documents by them), a block-diagonal mask (any model), and batches without padding or rows (kernels for
sequences of varying lengths).

Shapes: B rows of L positions, at most M documents each; T tokens of D documents in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from clozeline.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.store.manifest import Metadata

_LENGTHS = "document_lengths"


def document_index(lengths: NDArray[Any], row_length: int) -> NDArray[np.int64]:
    """The number within its row of the document at each position; padding has the number after the last.

    Args:
        lengths: (B, M), tokens of each document of each row, filled up with 0.

    Returns:
        int64 (B, L): [3, 2, 0] and L = 7 -> [0, 0, 0, 1, 1, 2, 2].
    """
    ends = np.cumsum(lengths, axis=1, dtype=np.int64)
    marks = np.zeros((len(lengths), row_length + 1), np.int64)
    row, slot = np.nonzero(lengths)
    marks[row, ends[row, slot]] = 1
    return np.cumsum(marks[:, :-1], axis=1)


def position_ids(lengths: NDArray[Any], row_length: int) -> NDArray[np.int64]:
    """Positions counted from the beginning of each document; 0 for padding.

    Args:
        lengths: (B, M), as for `document_index`.

    Returns:
        int64 (B, L): [3, 2, 0] and L = 7 -> [0, 1, 2, 0, 1, 0, 0].
    """
    position = np.arange(row_length)
    begins = np.zeros((len(lengths), row_length + 1), np.int64)
    ends = np.cumsum(lengths, axis=1, dtype=np.int64)
    row, slot = np.nonzero(lengths)
    begins[row, ends[row, slot]] = ends[row, slot]
    counted = position - np.maximum.accumulate(begins[:, :-1], axis=1)
    return np.where(position < ends[:, -1:], counted, 0)


def _lengths(batch: dict[str, NDArray[Any]]) -> NDArray[Any]:
    if _LENGTHS not in batch:
        raise DataError(f"the rows have no column {_LENGTHS}: pack with --boundaries")
    return batch[_LENGTHS]


@dataclass(frozen=True, kw_only=True)
class ResetPositions:
    """Adds `position_ids` (B, L) that begin anew with each document, 0 for padding.

    By themselves they keep documents apart only in models that tell documents by them, as attention kernels for sequences of
    varying lengths do; others need `BlockDiagonalMask` too, which takes them along on request.
    """

    columns: ClassVar[tuple[str, ...]] = (_LENGTHS,)

    def __call__(
        self,
        batch: dict[str, NDArray[Any]],
        *,
        shards: NDArray[np.int64],
        rows: NDArray[np.int64],
        epoch: int,
        meta: Metadata,
    ) -> dict[str, NDArray[Any]]:
        """The batch with `position_ids`.

        Raises:
            DataError: packed without boundaries.
        """
        return {**batch, "position_ids": position_ids(_lengths(batch), batch["input_ids"].shape[1])}


@dataclass(frozen=True, kw_only=True)
class BlockDiagonalMask:
    """Makes `attention_mask` (B, 1, L, L): a position attends to its own document, padding to padding (never to nothing, whose
    softmax is no number).

    Attributes:
        form: "bool" (True: attend), for scaled dot-product attention; "additive" (float32: 0 or the lowest number), for
            implementations that add it to the scores.
        reset_positions: add `position_ids` too.

    Memory: B * L * L bytes, or four times that.
    """

    form: Literal["bool", "additive"] = "bool"
    reset_positions: bool = True
    columns: ClassVar[tuple[str, ...]] = (_LENGTHS,)

    def __post_init__(self) -> None:
        if self.form not in ("bool", "additive"):
            raise ConfigError(f"form is {self.form!r}: use 'bool' or 'additive'")

    def __call__(
        self,
        batch: dict[str, NDArray[Any]],
        *,
        shards: NDArray[np.int64],
        rows: NDArray[np.int64],
        epoch: int,
        meta: Metadata,
    ) -> dict[str, NDArray[Any]]:
        """The batch with that `attention_mask`.

        Raises:
            DataError: packed without boundaries.
        """
        lengths, row_length = _lengths(batch), batch["input_ids"].shape[1]
        index = document_index(lengths, row_length)
        mask: NDArray[Any] = index[:, None, :, None] == index[:, None, None, :]
        if self.form == "additive":
            mask = np.where(mask, np.float32(0), np.finfo(np.float32).min)
        added = {"position_ids": position_ids(lengths, row_length)} if self.reset_positions else {}
        return {**batch, **added, "attention_mask": mask}

    def identity(self) -> dict[str, Any]:
        """What the result depends on, as JSON."""
        return {"form": self.form, "reset_positions": self.reset_positions}


@dataclass(frozen=True, kw_only=True)
class Unpadded:
    """Makes one flat sequence of a batch, without padding, for attention kernels that take sequences of varying lengths.

    Columns (B, L) become (T,); others stay. `attention_mask` goes; there come `position_ids` (T,), counted within each document,
    `cu_seqlens` int32 (D + 1,), where documents begin and the last ends, and `max_seqlen` (), tokens of the longest.
    """

    columns: ClassVar[tuple[str, ...]] = (_LENGTHS,)
    flat: ClassVar[bool] = True  # its batches have no rows

    def __call__(
        self,
        batch: dict[str, NDArray[Any]],
        *,
        shards: NDArray[np.int64],
        rows: NDArray[np.int64],
        epoch: int,
        meta: Metadata,
    ) -> dict[str, NDArray[Any]]:
        """The batch without padding.

        Raises:
            DataError: packed without boundaries.
        """
        lengths, shape = _lengths(batch), batch["input_ids"].shape
        there = np.arange(shape[1]) < lengths.sum(axis=1, dtype=np.int64)[:, None]
        flat = {
            name: values[there] if values.shape == shape else values
            for name, values in batch.items()
            if name not in ("attention_mask", _LENGTHS)
        }
        documents = lengths[lengths > 0].astype(np.int32)
        return {
            **flat,
            "position_ids": position_ids(lengths, shape[1])[there],
            "cu_seqlens": np.concatenate([np.zeros(1, np.int32), np.cumsum(documents, dtype=np.int32)]),
            "max_seqlen": np.array(documents.max(initial=0), np.int32),
        }
