"""Documents as tokens, on their way from the tokenizer to a packer.

Shapes: T tokens of S sentences of D documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clozeline.store.ledger import Ledger

    Columns = dict[str, NDArray[Any]]
    Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenDocuments:
    """Some consecutive documents of a shard; of the first, perhaps only its end.

    Attributes:
        columns: (T,) by name, one value a token, the documents one after another; `input_ids` is one of them.
        lengths: (D,), tokens of each document; none is 0.
        numbers: (D,), running number of each document within its shard.
        offsets: (D,), number within its document of the first token that is here: 0 but for the first document.
        totals: (D,), tokens of each whole document.
        sentences: (S,), tokens of each sentence, none 0; None where text is not split.
    """

    columns: Columns
    lengths: Integers
    numbers: Integers
    offsets: Integers
    totals: Integers
    sentences: Integers | None = None

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum())

    @property
    def starts(self) -> Integers:
        """(D,): where each document begins in the columns."""
        return np.cumsum(self.lengths) - self.lengths

    def documents(self, first: int, last: int) -> TokenDocuments:
        """Those from `first` up to `last`."""
        ends = np.concatenate(([0], np.cumsum(self.lengths)))
        return self._slice(first, last, int(ends[first]), int(ends[last]))

    def after(self, token: int) -> TokenDocuments:
        """What is left without the first `token` tokens."""
        first = int(np.searchsorted(np.cumsum(self.lengths), token, side="right"))
        return self._slice(first, len(self.lengths), token, self.tokens)

    def _slice(self, first: int, last: int, start: int, stop: int) -> TokenDocuments:
        cut = start - int(self.lengths[:first].sum())
        lengths, offsets = self.lengths[first:last].copy(), self.offsets[first:last].copy()
        if cut:
            lengths[0] -= cut
            offsets[0] += cut
        sentences = self.sentences
        if sentences is not None:
            ends = np.cumsum(sentences)
            a, b = np.searchsorted(ends, start, side="right"), np.searchsorted(ends, stop, side="left") + 1
            part = sentences[a:b].copy() if stop > start else sentences[:0]
            if len(part):
                part[0] = ends[a] - start
            sentences = part
        return TokenDocuments(
            columns={name: values[start:stop] for name, values in self.columns.items()},
            lengths=lengths,
            numbers=self.numbers[first:last],
            offsets=offsets,
            totals=self.totals[first:last],
            sentences=sentences,
        )


def joined(parts: Sequence[TokenDocuments]) -> TokenDocuments:
    """Consecutive documents as one; of a document that two parts hold an end and a beginning of, nothing is made whole."""
    if len(parts) == 1:
        return parts[0]
    sentences = [p.sentences for p in parts if p.sentences is not None]
    return TokenDocuments(
        columns={name: np.concatenate([p.columns[name] for p in parts]) for name in parts[0].columns},
        lengths=np.concatenate([p.lengths for p in parts]),
        numbers=np.concatenate([p.numbers for p in parts]),
        offsets=np.concatenate([p.offsets for p in parts]),
        totals=np.concatenate([p.totals for p in parts]),
        sentences=np.concatenate(sentences) if sentences else None,
    )


def whole_documents(
    columns: Columns,
    lengths: Integers,
    sentences: Integers | None,
    first_number: int,
    ledger: Ledger,
    *,
    at_least: int,
    at_most: int | None,
) -> TokenDocuments:
    """Documents as the tokenizer gives them, without those that are too short and without what is too much.

    Args:
        columns: (T,) by name.
        lengths: (D,), 0 allowed.
        sentences: (S,), 0 allowed.
        first_number: of the first document within its shard; every document has a number, dropped or not.
        ledger: told of documents and tokens taken, and of each drop by its reason.
        at_least, at_most: tokens of a document.
    """
    documents, tokens = ledger.documents, ledger.tokens
    documents.taken += len(lengths)
    tokens.taken += len(columns["input_ids"])
    numbers = np.arange(first_number, first_number + len(lengths))
    keep = np.where(lengths >= at_least, lengths, 0)
    empty, short = int((lengths == 0).sum()), int(((lengths > 0) & (keep == 0)).sum())
    if empty:
        documents.dropped["no_tokens"] += empty
    if short:
        documents.dropped["too_short"] += short
        tokens.dropped["documents_too_short"] += int(lengths[keep == 0].sum())
    if at_most is not None and (keep > at_most).any():
        ledger.counts["documents_too_long"] += int((keep > at_most).sum())
        tokens.dropped["documents_too_long"] += int((keep - np.minimum(keep, at_most)).sum())
        keep = np.minimum(keep, at_most)
    if sentences is not None:
        ends, document_ends = np.cumsum(sentences), np.cumsum(lengths)
        owner = np.minimum(np.searchsorted(document_ends, ends - sentences, side="right"), max(len(lengths) - 1, 0))
        limit = (document_ends - lengths + keep)[owner] if len(lengths) else ends
        sentences = np.minimum(ends, limit) - (ends - sentences)
        sentences = sentences[sentences > 0]
    if (keep != lengths).any():
        starts = np.cumsum(lengths) - lengths
        within = np.arange(len(columns["input_ids"])) - np.repeat(starts, lengths)
        wanted = within < np.repeat(keep, lengths)
        columns = {name: values[wanted] for name, values in columns.items()}
    there = keep > 0
    lengths = keep[there]
    documents.out += len(lengths)
    return TokenDocuments(
        columns=columns,
        lengths=lengths,
        numbers=numbers[there],
        offsets=np.zeros(len(lengths), np.int64),
        totals=lengths,
        sentences=sentences,
    )
