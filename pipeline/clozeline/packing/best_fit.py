"""Packing whole documents by best-fit decreasing (Ding et al. 2024, "Fewer Truncations Improve Language Modeling", section 3).

Documents longer than a row are cut every C tokens; their ends and all shorter documents are packed, the longest first, each into
the row with the least room that still holds it, a new one if there is none. No document that fits in a row is cut.

Shapes: N items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clozeline.packing.pieces import pieces_of, spread

if TYPE_CHECKING:
    from clozeline.packing.rows import Frame, Pieces
    from clozeline.packing.tokens import Integers, TokenDocuments
    from clozeline.store.ledger import Ledger


def best_fit_decreasing(weights: Integers, room: int) -> Integers:
    """The bin of each item.

    Args:
        weights: (N,), each at least 1 and at most `room`.
        room: of an empty bin.

    Returns:
        int64 (N,): bins numbered in the order they were opened.

    Equal weights go in the order given; of bins with equal room the one that was left last. A bit for each amount of room that
    some bin has makes "least room that holds it" one shift: about a microsecond an item, whatever the number of bins.
    """
    order = np.argsort(-weights, kind="stable")
    bins = np.empty(len(weights), np.int64)
    chosen = []
    with_room: list[list[int]] = [[] for _ in range(room + 1)]
    present = 0  # bit r: some bin has room r
    opened = 0
    for weight in weights[order].tolist():
        fitting = present >> weight
        if fitting:
            left = weight + (fitting & -fitting).bit_length() - 1
            stack = with_room[left]
            bin_ = stack.pop()
            if not stack:
                present ^= 1 << left
        else:
            left, bin_, opened = room, opened, opened + 1
        chosen.append(bin_)
        left -= weight
        if left:
            with_room[left].append(bin_)
            present |= 1 << left
    bins[order] = chosen
    return bins


def best_fit(documents: TokenDocuments, frame: Frame, ledger: Ledger, *, last: bool) -> tuple[Pieces, int]:
    """Packs a window of documents; rows come in the order of the first document that they hold."""
    capacity, join = frame.capacity, len(frame.join)
    owner, number = spread(-(-documents.lengths // capacity))
    begin = number * capacity
    tokens = np.minimum(documents.lengths[owner] - begin, capacity)
    bins = np.arange(len(tokens))
    items = np.flatnonzero(tokens < capacity)
    # A joint stands before every piece of a row but the first: with one before each, rows have that much more room.
    bins[items] = len(tokens) + best_fit_decreasing(tokens[items] + join, capacity + join)
    _, first, row = np.unique(bins, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    row = rank[row]
    order = np.argsort(row, kind="stable")
    return pieces_of(documents, row[order], owner[order], begin[order], tokens[order]), documents.tokens
