"""`Masking`: the mask function as a transform of batches, for masking on the fly.

Shapes: B rows of L positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError, DataError
from clozeline.mask_function import VERSION, MaskRule, apply_mask
from clozeline.seeds import row_words
from clozeline.store.masks import mask_vocabulary
from clozeline.store.schema import label_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from clozeline.store.manifest import Metadata


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Masks batches of a packed data set: epoch k gives what static copy k holds, bit for bit.

    A row's mask depends on the seed, the epoch, and where the row stands (shard and row number): on no batch, worker, rank or
    order.

    Attributes:
        seed: 0 to 2**64 - 1.
        rule: how positions are selected and what becomes of them.
    """

    seed: int
    rule: MaskRule = field(default_factory=MaskRule)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed is {self.seed}: it lies between 0 and 2**64 - 1")

    def __call__(
        self,
        batch: dict[str, NDArray[Any]],
        *,
        shards: NDArray[np.int64],
        rows: NDArray[np.int64],
        epoch: int,
        meta: Metadata,
    ) -> dict[str, NDArray[Any]]:
        """Masks a batch.

        Args:
            batch: `input_ids` (B, L) and whatever else comes along.
            shards, rows: int64 (B,), the identity of each row.
            epoch: which masking.
            meta: of the data set.

        Returns:
            The batch with masked `input_ids`, and `labels` (B, L), int16 or int32: the original id where selected, -100 elsewhere.

        Raises:
            DataError: the rows are masked already.
        """
        if meta.stage != "packing" or meta.tokenizer is None:
            raise DataError(f"masking on the fly needs packed rows, not {meta.stage} data; give the packed data set")
        ids = batch["input_ids"]
        words = row_words(self.seed, epoch, shards, rows, ids.shape[1])
        dtype = label_dtype(meta.tokenizer.vocabulary_size)
        masked = apply_mask(ids, words, self.rule, mask_vocabulary(meta.tokenizer), label_dtype=dtype)
        return {**batch, "input_ids": masked.ids, "labels": masked.labels}

    def identity(self) -> dict[str, Any]:
        """What the masks depend on, as JSON: for checkpoints, which must not be resumed with other masks."""
        return {"mask_function": VERSION, "seed": self.seed, **self.rule.to_json()}
