"""`Masking`: the mask function as a transform of batches, for masking on the fly.

Shapes: B rows of L positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError, DataError
from clozeline.mask_function import VERSION, MaskRule, mask_rows
from clozeline.store.masks import TokenCounts, check_rule, mask_vocabulary
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
        counts: `token_counts` of the packed data set, where `rule` draws replacements by frequency.
        allow_lower_rate: `rule.max_predictions` may lower the rate by more than a tenth.
    """

    seed: int
    rule: MaskRule = field(default_factory=MaskRule)
    counts: TokenCounts | None = None
    allow_lower_rate: bool = False

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
            ConfigError: the rule does not fit them.
        """
        if meta.stage != "packing" or meta.tokenizer is None:
            raise DataError(f"masking on the fly needs packed rows, not {meta.stage} data; give the packed data set")
        check_rule(self.rule, meta, allow_lower_rate=self.allow_lower_rate)
        masked = mask_rows(
            batch["input_ids"],
            self.rule,
            mask_vocabulary(meta.tokenizer, self.rule, self.counts),
            seed=self.seed,
            copy=epoch,
            shards=shards,
            rows=rows,
            label_dtype=label_dtype(meta.tokenizer.vocabulary_size),
            word_starts=batch.get("word_starts"),
        )
        return {**batch, "input_ids": masked.ids, "labels": masked.labels}

    def identity(self) -> dict[str, Any]:
        """What the masks depend on, as JSON: for checkpoints, which must not be resumed with other masks."""
        counts = {"token_counts": self.counts.sha256} if self.counts else {}
        return {"mask_function": VERSION, "seed": self.seed, **self.rule.to_json(), **counts}
