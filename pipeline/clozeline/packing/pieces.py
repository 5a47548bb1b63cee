"""Packing by pieces: windows of documents in, the pieces that a scheme makes of them laid out in rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from clozeline.packing.rows import Block, Pieces, lay_out
from clozeline.packing.tokens import TokenDocuments, joined
from clozeline.store.schema import rows_per_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clozeline.packing.rows import Frame
    from clozeline.packing.tokens import Integers
    from clozeline.store.ledger import Ledger


class Plan(Protocol):
    """A scheme: what pieces of a window of documents go to which rows. A pure function."""

    def __call__(self, documents: TokenDocuments, frame: Frame, ledger: Ledger, *, last: bool) -> tuple[Pieces, int]:
        """Gives the pieces, and how many of the window's tokens are done with; the rest comes again with the next window.

        Args:
            ledger: told of the tokens that the pieces leave out or repeat.
            last: nothing comes after; all tokens must be done with.
        """
        ...


class PiecePacker:
    """Turns documents into blocks of rows by a plan.

    Args:
        window: tokens after which a window closes, with the document that fills it; at least a few rows.

    Linear in time where the plan is; memory is a window and its longest document, whatever the corpus.
    """

    def __init__(self, plan: Plan, frame: Frame, ledger: Ledger, window: int) -> None:
        self._plan, self._frame, self._ledger, self._window = plan, frame, ledger, window
        self._held: list[TokenDocuments] = []
        self._tokens = 0

    def add(self, documents: TokenDocuments) -> Iterator[Block]:
        """Takes documents, gives what rows are made of the windows that are full."""
        while len(documents.lengths):
            # Windows depend on the documents alone, not on how they were read.
            ends = self._tokens + np.cumsum(documents.lengths)
            fills = int(np.searchsorted(ends, self._window))
            if fills == len(ends):
                self._hold(documents)
                return
            self._hold(documents.documents(0, fills + 1))
            yield from self._run(last=False)
            documents = documents.documents(fills + 1, len(ends))

    def finish(self) -> Iterator[Block]:
        """The rest."""
        if self._held:
            yield from self._run(last=True)

    def _hold(self, documents: TokenDocuments) -> None:
        self._held.append(documents)
        self._tokens += documents.tokens

    def _run(self, *, last: bool) -> Iterator[Block]:
        documents = joined(self._held)
        rows_at_once = rows_per_batch(self._frame.row_length)
        pieces, done = self._plan(documents, self._frame, self._ledger, last=last)
        rows = int(pieces.row[-1]) + 1 if len(pieces.row) else 0
        for first in range(0, rows, rows_at_once):
            part = pieces.of_rows(first, first + rows_at_once)
            yield lay_out(part, documents.columns, self._frame, self._ledger)
        self._held = [documents.after(done)] if done < documents.tokens else []
        self._tokens -= done


def spread(lengths: Integers) -> tuple[Integers, Integers]:
    """For each of n things of these lengths, its owner and its number within it: [2, 1] -> [0, 0, 1], [0, 1, 0]."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def pieces_of(documents: TokenDocuments, row: Integers, owner: Integers, begin: Integers, tokens: Integers) -> Pieces:
    """Pieces by the document of the window that they are cut from, and where in what is here of it they begin."""
    return Pieces(
        row=row,
        source=documents.starts[owner] + begin,
        tokens=tokens,
        document=documents.numbers[owner],
        offset=documents.offsets[owner] + begin,
        total=documents.totals[owner],
    )
