"""Packing by concatenation: documents end to end with a separator between them, cut every C tokens.

The FULL-SENTENCES scheme of RoBERTa (Liu et al. 2019, section 4.2) without its sentence boundaries: rows are dense and may cross
documents. Linear in time; memory is a block of rows and the longest document.

Shapes: T tokens of D documents; R rows of L positions, C = L - template positions of them for content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clozeline.packing.rows import Block, Segments, count_frame, mask_columns
from clozeline.packing.tokens import TokenDocuments, joined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clozeline.packing.rows import Frame
    from clozeline.packing.tokens import Columns, Integers
    from clozeline.store.ledger import Ledger


class ConcatPacker:
    """Turns documents into blocks of rows; all blocks but the last have `block_rows` rows.

    Args:
        drop_remainder: leave the last row out when it is not full.
        ledger: told of what is added and dropped.
    """

    def __init__(self, frame: Frame, block_rows: int, ledger: Ledger, *, drop_remainder: bool = False) -> None:
        self._frame, self._ledger, self._drop = frame, ledger, drop_remainder
        self._need = block_rows * frame.capacity
        self._held: list[TokenDocuments] = []
        self._ends = 0  # where the documents so far end in the stream of documents and joints
        self._made = 0  # positions of it that are in rows

    def add(self, documents: TokenDocuments) -> Iterator[Block]:
        """Takes documents, gives the blocks that are full."""
        if not len(documents.lengths):
            return
        self._held.append(documents)
        join = len(self._frame.join)
        self._ends += documents.tokens + join * (len(documents.lengths) - (self._ends == 0))
        if self._ends - self._made < self._need:
            return
        yield from self._blocks((self._ends - self._made) // self._need * self._need)

    def finish(self) -> Iterator[Block]:
        """The rest, its last row padded."""
        left = self._ends - self._made
        if self._drop:
            left -= left % self._frame.capacity
        if left:
            yield from self._blocks(left)
        for rest in self._held:
            self._ledger.tokens.dropped["remainder"] += rest.tokens
            dropped = int((rest.offsets == 0).sum())
            self._ledger.documents.dropped["remainder"] += dropped
            self._ledger.documents.out -= dropped

    def _blocks(self, length: int) -> Iterator[Block]:
        """The next `length` positions of the stream as blocks; what is held afterwards begins after them."""
        frame = self._frame
        documents = joined(self._held)
        # Where documents begin in the stream, counted from its first position that is not in rows yet. The first one has no
        # joint before it if it is the shard's first, or if its beginning is in rows already.
        starts = np.cumsum(documents.lengths + len(frame.join)) - documents.lengths - self._lead(documents)
        size = int(starts[-1] + documents.lengths[-1])
        joints = starts[:, None] - np.arange(len(frame.join), 0, -1)  # (D, join)
        there = joints >= 0
        is_text = np.ones(size, bool)
        is_text[joints[there]] = False
        stream: Columns = {}
        for name, values in documents.columns.items():
            stream[name] = np.zeros(size, frame.dtype if name == "input_ids" else values.dtype)
            stream[name][is_text] = values
        stream["input_ids"][joints[there]] = np.broadcast_to(frame.join, joints.shape)[there]
        for first in range(0, length, self._need):
            last = min(length, first + self._need)
            yield self._rows({n: v[first:last] for n, v in stream.items()}, documents, starts, first, last)
        self._made += length
        self._held = []
        taken = int(np.clip(length - starts, 0, documents.lengths).sum())
        if taken < documents.tokens:
            self._held = [documents.after(taken)]

    def _lead(self, documents: TokenDocuments) -> int:
        """How much shorter than a joint the stretch before the first held document is."""
        join = len(self._frame.join)
        before = self._ends - self._made - documents.tokens - join * (len(documents.lengths) - 1)
        return join - before

    def _rows(self, stream: Columns, documents: TokenDocuments, starts: Integers, first: int, last: int) -> Block:
        frame, size = self._frame, last - first
        content, length, before = frame.capacity, frame.row_length, len(frame.prefix)
        full, rest = divmod(size, content)
        rows = full + (rest > 0)
        num_tokens = np.full(rows, length, np.int64)
        if rest:
            num_tokens[full] = before + rest + len(frame.suffix)
        columns = {}
        for name, values in stream.items():
            made = np.full((rows, length), frame.pad_id if name == "input_ids" else 0, values.dtype)
            made[:full, before : before + content] = values[: full * content].reshape(full, content)
            if rest:
                made[full, before : before + rest] = values[full * content :]
            if name == "input_ids":
                made[:, :before] = frame.prefix
                made[:full, before + content :] = frame.suffix
                if rest:
                    made[full, before + rest : before + rest + len(frame.suffix)] = frame.suffix
            columns[name] = made
        segments = _cut(starts - first, documents, size, content, before)
        joints = size - int(segments.tokens.sum())
        heads = self._heads(starts - first, size)
        ledger = self._ledger
        count_frame(ledger, frame, rows, 0, rows * length - int(num_tokens.sum()))
        if joints > heads:
            ledger.tokens.added["separators"] += joints - heads
        ledger.tokens.added["template"] += heads
        return Block({**columns, **mask_columns(num_tokens, length)}, segments)

    def _heads(self, starts: Integers, size: int) -> int:
        """Ids of joints within the block that belong to the document after."""
        return sum(int(((at >= 0) & (at < size)).sum()) for at in (starts - k for k in range(1, self._frame.head + 1)))


def _cut(starts: Integers, documents: TokenDocuments, size: int, content: int, before: int) -> Segments:
    """The documents in a block of the stream, cut into its rows.

    Args:
        starts: (D,), where each document begins, counted from the block's first position; negative before it.
        size: positions in the block.
        content, before: positions of a row for content, and before it.
    """
    begin, end = np.clip(starts, 0, size), np.clip(starts + documents.lengths, 0, size)
    there = np.flatnonzero(end > begin)
    begin, end = begin[there], end[there]
    first = begin // content
    pieces = (end - 1) // content - first + 1
    # Documents over 1 and 3 rows from rows 0 and 0 on: rows [0, 0, 1, 2]
    row = np.repeat(first, pieces) + np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    owner = np.repeat(np.arange(len(there)), pieces)
    start, stop = np.maximum(begin[owner], row * content), np.minimum(end[owner], (row + 1) * content)
    document = there[owner]
    return Segments(
        row=row,
        start=start - row * content + before,
        tokens=stop - start,
        document=documents.numbers[document],
        offset=documents.offsets[document] + start - starts[document],
        total=documents.totals[document],
    )
