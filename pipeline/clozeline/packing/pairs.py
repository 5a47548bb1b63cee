"""Packing in segment pairs: `[CLS] A [SEP] B [SEP]`, for next-sentence prediction and sentence-order prediction.

After Devlin et al. 2019 (section 3.1, "Task #2", and appendix A.2) and, for the order of two segments, Lan et al. 2020
(section 3.1). Segments are whole sentences. Everything random about the pair that begins with sentence s of document d of text
shard h in copy c comes from one block of words, `Philox(key=[seed, c], counter=[s, d, h, 4])`: no order matters.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clozeline.packing.rows import Block, Pieces, lay_out
from clozeline.seeds import SENTENCE_PAIRS, block_words
from clozeline.store.schema import PAIR_LABELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clozeline.packing.options import PackOptions
    from clozeline.packing.rows import Frame
    from clozeline.packing.token_store import TokenStore
    from clozeline.packing.tokens import Columns
    from clozeline.store.ledger import Ledger

_LOW = 2**32 - 1
_RELEASE_EVERY = (
    64  # pairs: a page that is read brings some neighbours with it, and half of the pairs read from anywhere
)


class Segment(NamedTuple):
    """A stretch of a document, by its number in the corpus; start and stop as the token store counts."""

    document: int
    start: int
    stop: int


class Pair(NamedTuple):
    """Two segments and what is to be predicted of them: 1 where B is of another document, or where A and B are swapped."""

    first: Segment
    second: Segment
    label: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PairDrawer:
    """Draws the pairs of one text shard.

    Attributes:
        capacity: tokens of both segments together.
        shard, copy: which text shard, and which time that pairs are drawn of it.
        ledger: told of tokens that are left out and of tokens from other documents.
    """

    store: TokenStore
    options: PackOptions
    capacity: int
    shard: int
    copy: int
    ledger: Ledger

    def pairs(self) -> Iterator[Pair]:
        """All pairs, document after document."""
        first, last = self.store.firsts[self.shard : self.shard + 2].tolist()
        for document in range(first, last):
            made = 0
            for pair in self._of_document(document, document - first):
                made += 1
                yield pair
            self.ledger.counts["documents_cut"] += made > 1
            if not made:
                self.ledger.documents.dropped["unpaired"] += 1
                self.ledger.documents.out -= 1

    def _of_document(self, document: int, number: int) -> Iterator[Pair]:
        bounds = self.store.bounds(document).tolist()
        count = len(bounds) - 1
        counters = np.zeros((count, 4), np.uint64)
        counters[:, 0], counters[:, 1] = np.arange(count), number
        counters[:, 2], counters[:, 3] = self.shard, SENTENCE_PAIRS
        words = block_words(self.options.seed, self.copy, counters).tolist()
        sop = self.options.objective == "sop"
        sentence = 0
        while sentence < count:
            length_word, cut_word, other_word, trim_word = words[sentence]
            target = self.capacity
            if length_word >> 32 < int(self.options.short_sequence_prob * 2**32):
                target = 2 + ((length_word & _LOW) * (self.capacity - 1) >> 32)
            # As many sentences as make up the target.
            end = bisect_left(bounds, bounds[sentence] + target, sentence + 1, count)
            if sop and end == sentence + 1:
                end += 1
            if end > count:
                self.ledger.tokens.dropped["unpaired"] += bounds[count] - bounds[sentence]
                return
            middle = sentence + 1
            if end - sentence > 2:
                middle += (cut_word >> 32) * (end - sentence - 1) >> 32
            coin = (cut_word & _LOW) >> 31
            a = Segment(document, bounds[sentence], bounds[middle])
            if sop:
                a, b = self._trimmed(a, Segment(document, bounds[middle], bounds[end]), trim_word & _LOW)
                yield Pair(b, a, 1) if coin else Pair(a, b, 0)
                sentence = end
            elif coin or end == middle:
                b = self._elsewhere(document, other_word, trim_word >> 32, target - (a.stop - a.start))
                a, b = self._trimmed(a, b, trim_word & _LOW, foreign=True)
                yield Pair(a, b, 1)
                sentence = middle  # what would have been B begins the next pair
            else:
                a, b = self._trimmed(a, Segment(document, bounds[middle], bounds[end]), trim_word & _LOW)
                yield Pair(a, b, 0)
                sentence = end

    def _elsewhere(self, document: int, document_word: int, sentence_word: int, target: int) -> Segment:
        """Sentences of another document, of the whole corpus, that make up the target or end with it."""
        other = document_word * (int(self.store.firsts[-1]) - 1) >> 64
        other += other >= document
        bounds = self.store.bounds(other)
        count = len(bounds) - 1
        start = sentence_word * count >> 32
        end = start + 1 + int(np.searchsorted(bounds[start + 1 : count], int(bounds[start]) + target))
        return Segment(other, int(bounds[start]), int(bounds[end]))

    def _trimmed(self, a: Segment, b: Segment, word: int, *, foreign: bool = False) -> tuple[Segment, Segment]:
        """Shortens the longer segment, then both in turn, until they fit; at which end, the word says."""
        sizes = a.stop - a.start, b.stop - b.start
        excess = sum(sizes) - self.capacity
        if excess > 0:
            keep_a = min(sizes[0], max(self.capacity - self.capacity // 2, self.capacity - sizes[1]))
            keep_b = self.capacity - keep_a
            a = _trim(a, sizes[0] - keep_a, word)
            b = _trim(b, sizes[1] - keep_b, word)
            dropped = sizes[0] - keep_a + (0 if foreign else sizes[1] - keep_b)
            self.ledger.tokens.dropped["truncated"] += dropped
        if foreign:
            self.ledger.tokens.added["random_segments"] += b.stop - b.start
        return a, b


def _trim(segment: Segment, excess: int, word: int) -> Segment:
    """Without `excess` tokens, of which word * (excess + 1) >> 32 at its beginning and the others at its end."""
    before = word * (excess + 1) >> 32
    return segment._replace(start=segment.start + before, stop=segment.stop - (excess - before))


def pair_blocks(drawer: PairDrawer, frame: Frame, block_rows: int) -> Iterator[Block]:
    """The pairs as rows, with `token_type_ids` (0 up to the end of what follows A, then 1, 0 for padding) and their label."""
    held = _Held(drawer.store)
    for pair in drawer.pairs():
        held.add(pair)
        if len(held.labels) == block_rows:
            yield held.block(drawer, frame)
            held = _Held(drawer.store)
    if held.labels:
        yield held.block(drawer, frame)


class _Held:
    """Pairs that are to be a block of rows, their tokens copied out of the store, whose memory is given back now and then."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self._columns: list[Columns] = []
        self._places: list[tuple[int, int, int, int]] = []  # document, first token in it, tokens here, tokens in all
        self.labels: list[int] = []

    def add(self, pair: Pair) -> None:
        for segment in (pair.first, pair.second):
            bounds = self._store.bounds(segment.document)
            begin, end = int(bounds[0]), int(bounds[-1])
            columns = self._store.columns(*segment)
            self._columns.append({name: values.copy() for name, values in columns.items()})
            size = segment.stop - segment.start
            self._places.append((segment.document, segment.start - begin, size, end - begin))
        self.labels.append(pair.label)
        if len(self.labels) % _RELEASE_EVERY == 0:
            self._store.release()

    def block(self, drawer: PairDrawer, frame: Frame) -> Block:
        names = self._columns[0]
        columns = {name: np.concatenate([part[name] for part in self._columns]) for name in names}
        document, offset, tokens, total = np.array(self._places, np.int64).T
        pieces = Pieces(
            row=np.arange(len(tokens)) // 2,
            source=np.cumsum(tokens) - tokens,
            tokens=tokens,
            document=document,
            offset=offset,
            total=total,
        )
        block = lay_out(pieces, columns, frame, drawer.ledger)
        position = np.arange(frame.row_length)
        second, used = block.segments.start[1::2, None], block.columns["num_tokens"][:, None]
        labels = np.array(self.labels, np.uint8)
        drawer.ledger.counts["pairs_of_label_1"] += int(labels.sum())
        added = {
            "token_type_ids": ((position >= second) & (position < used)).view(np.uint8),
            PAIR_LABELS[drawer.options.objective]: labels,
        }
        return Block({**block.columns, **added}, block.segments)
