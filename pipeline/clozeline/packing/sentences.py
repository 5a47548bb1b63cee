"""Packing by whole sentences: RoBERTa's FULL-SENTENCES and DOC-SENTENCES (Liu et al. 2019, section 4.2).

A row takes the next sentence while there is room for all of it. FULL-SENTENCES goes on across documents, with a separator between
them; DOC-SENTENCES begins a new row with each document. A sentence longer than a row is cut every C tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clozeline.packing.pieces import pieces_of, spread

if TYPE_CHECKING:
    from clozeline.packing.rows import Frame, Pieces
    from clozeline.packing.tokens import TokenDocuments
    from clozeline.store.ledger import Ledger


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeSentences:
    """Fills rows with whole sentences in order.

    Attributes:
        across: whether a row may hold several documents.
        drop_remainder: leave out the last row of a shard if another sentence of one token would have fitted in.
    """

    across: bool
    drop_remainder: bool = False

    def __call__(self, documents: TokenDocuments, frame: Frame, ledger: Ledger, *, last: bool) -> tuple[Pieces, int]:
        assert documents.sentences is not None
        capacity = frame.capacity
        # Units are sentences, and pieces of those that are longer than a row.
        sentence, number = spread(-(-documents.sentences // capacity))
        tokens = np.minimum(documents.sentences[sentence] - number * capacity, capacity)
        ends = np.cumsum(tokens)
        document_ends = np.cumsum(documents.lengths)
        document = np.searchsorted(document_ends, ends - tokens, side="right")
        opens = np.append(True, np.diff(document) != 0)[: len(tokens)]  # a document in this window
        filled = np.cumsum(tokens + opens * len(frame.join))  # where the unit ends in rows of endless length

        filled_list, tokens_list = filled.tolist(), tokens.tolist()
        limit = len(tokens)
        last_of = (
            np.searchsorted(document, document, side="right") if not self.across else np.full(limit, limit)
        ).tolist()
        firsts = []
        unit = 0
        while unit < limit:
            firsts.append(unit)
            room = filled_list[unit] - tokens_list[unit] + capacity
            unit = min(bisect_right(filled_list, room, unit), last_of[unit])
        done = limit
        if firsts and self.across:
            open_row = firsts[-1]
            used = filled_list[-1] - filled_list[open_row] + tokens_list[open_row]
            if not last:
                done = open_row
                firsts.pop()
            elif self.drop_remainder and used < capacity:
                done = open_row
                firsts.pop()
                left = documents.after(int(ends[open_row] - tokens[open_row]))
                ledger.tokens.dropped["remainder"] += left.tokens
                dropped = int((left.offsets == 0).sum())
                ledger.documents.dropped["remainder"] += dropped
                ledger.documents.out -= dropped

        starts_row = np.zeros(done, bool)
        starts_row[firsts] = True
        row = np.cumsum(starts_row) - 1
        # Units of one document in one row are one piece.
        piece = np.flatnonzero(starts_row | opens[:done])
        owner = document[piece]
        begin = (ends - tokens)[piece] - documents.starts[owner]
        size = np.add.reduceat(tokens[:done], piece) if len(piece) else tokens[:0]
        left_over = not last and done < limit
        finished = int(ends[done - 1]) if done else 0
        return (
            pieces_of(documents, row[piece], owner, begin, size),
            finished if left_over else documents.tokens,
        )
