"""Packing one document a row: rows never cross documents; a long document takes several, which may overlap.

For tasks where a row must be one text, and for models that are to see documents from their beginning. Padding is the price:
`best-fit` keeps documents whole just as well and pads next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clozeline.errors import ConfigError
from clozeline.packing.pieces import pieces_of, spread

if TYPE_CHECKING:
    from clozeline.packing.rows import Frame, Pieces
    from clozeline.packing.tokens import TokenDocuments
    from clozeline.store.ledger import Ledger


@dataclass(frozen=True, kw_only=True, slots=True)
class OneDocument:
    """Cuts a document of n tokens at 0, C - stride, 2 (C - stride), ... into pieces of at most C, until all is covered.

    Attributes:
        stride: tokens that a piece repeats of the piece before it, less than C.
        min_tokens: a piece after the first with fewer tokens that are new is left out.
    """

    stride: int = 0
    min_tokens: int = 1

    def __call__(self, documents: TokenDocuments, frame: Frame, ledger: Ledger, *, last: bool) -> tuple[Pieces, int]:
        if self.stride >= frame.capacity:
            raise ConfigError(
                f"stride is {self.stride}: a row holds {frame.capacity} tokens and must repeat fewer than that"
            )
        step = frame.capacity - self.stride
        lengths = documents.lengths
        count = 1 + np.maximum(0, -(-(lengths - frame.capacity) // step))
        owner, number = spread(count)
        begin = number * step
        tokens = np.minimum(lengths[owner] - begin, frame.capacity)
        new = np.where(number > 0, tokens - self.stride, tokens)
        keep = (number == 0) | (new >= self.min_tokens)
        dropped, repeated = int(new[~keep].sum()), int((tokens - new)[keep].sum())
        if dropped:
            ledger.tokens.dropped["short_tails"] += dropped
        if repeated:
            ledger.tokens.added["overlap"] += repeated
        owner, begin, tokens = owner[keep], begin[keep], tokens[keep]
        return pieces_of(documents, np.arange(len(owner)), owner, begin, tokens), documents.tokens
