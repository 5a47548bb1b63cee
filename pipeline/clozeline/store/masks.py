"""The mask function as a data set's metadata describes it: its vocabulary and its rule."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from clozeline.errors import DataError
from clozeline.mask_function import VERSION, MaskRule, MaskVocabulary

if TYPE_CHECKING:
    from clozeline.store.manifest import Metadata, TokenizerFacts


@lru_cache(maxsize=8)
def mask_vocabulary(facts: TokenizerFacts) -> MaskVocabulary:
    """What the mask function must know of a data set's tokenizer."""
    ordinary = np.concatenate([np.arange(a, b + 1, dtype=np.int64) for a, b in facts.ordinary_ranges])
    return MaskVocabulary(mask_id=facts.mask_id, special_ids=facts.special_ids, ordinary_ids=ordinary)


def mask_rule(metadata: Metadata) -> MaskRule:
    """The rule by which a masked data set was made.

    Raises:
        DataError: it was made by another version of the mask function.
    """
    if metadata.mask_function != VERSION:
        raise DataError(
            f"masked by version {metadata.mask_function} of the mask function, this clozeline knows version {VERSION}: "
            "use the clozeline that wrote it"
        )
    return MaskRule.from_json({k: v for k, v in metadata.config.items() if k != "copies"})
