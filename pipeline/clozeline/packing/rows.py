"""Rows made of pieces of documents: which piece goes where is a scheme's business, putting it there is done here, once.

Shapes: P pieces, R rows of L positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clozeline.store.schema import id_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from numpy.typing import NDArray

    from clozeline.store.ledger import Ledger
    from clozeline.store.manifest import TokenizerFacts

    Columns = dict[str, NDArray[Any]]
    Integers = NDArray[np.int64]


class Pieces(NamedTuple):
    """Stretches of documents and the rows they go to: int64 (P,) each, in the order of the rows and within them.

    Attributes:
        row: non-decreasing; each row from 0 on has a piece.
        source: where the piece begins in the columns it is taken from.
        tokens: how long it is.
        document, offset, total: number of its document within the shard, of its first token within the document, and of the
            document's tokens.
    """

    row: Integers
    source: Integers
    tokens: Integers
    document: Integers
    offset: Integers
    total: Integers

    def of_rows(self, first: int, last: int) -> Pieces:
        """Those of rows `first` up to `last`, which are counted from 0 again."""
        return Pieces(*_of_rows(self, first, last))


class Segments(NamedTuple):
    """What stands in rows: int64 (P,) each. As `Pieces`, with `start`, the position of the first token within the row."""

    row: Integers
    start: Integers
    tokens: Integers
    document: Integers
    offset: Integers
    total: Integers

    def of_rows(self, first: int, last: int) -> Segments:
        """Those of rows `first` up to `last`, which are counted from 0 again."""
        return Segments(*_of_rows(self, first, last))


def _of_rows(columns: Pieces | Segments, first: int, last: int) -> list[Integers]:
    a, b = np.searchsorted(columns.row, (first, last))
    return [columns.row[a:b] - first, *(values[a:b] for values in columns[1:])]


class Block(NamedTuple):
    """Consecutive rows of a shard: columns (R, L) or (R,) by name, and where their tokens come from."""

    columns: Columns
    segments: Segments

    @property
    def rows(self) -> int:
        return len(self.columns["num_tokens"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """What surrounds documents in a row.

    Attributes:
        prefix, suffix: ids before the first and after the last document of a row.
        join: ids between two documents; of these `head` belong to the second.
        pad_id: fills up.
        row_length: L.
        dtype: of ids.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    join: tuple[int, ...]
    head: int
    pad_id: int
    row_length: int
    dtype: npt.DTypeLike

    @property
    def capacity(self) -> int:
        """C, positions of a row that the template leaves."""
        return self.row_length - len(self.prefix) - len(self.suffix)


def make_frame(facts: TokenizerFacts, row_length: int, *, separator: bool = True, add_prefix: bool = False) -> Frame:
    """The tokenizer's template around rows, a separator (and the template's prefix) between documents."""
    head = facts.prefix_ids if add_prefix else ()
    join = ((facts.separator_id,) if separator else ()) + head
    return _frame(facts, row_length, join, len(head))


def pair_frame(facts: TokenizerFacts, row_length: int) -> Frame:
    """The tokenizer's own template for two sequences."""
    return _frame(facts, row_length, facts.pair_ids, 0)


def _frame(facts: TokenizerFacts, row_length: int, join: tuple[int, ...], head: int) -> Frame:
    return Frame(
        prefix=facts.prefix_ids,
        suffix=facts.suffix_ids,
        join=join,
        head=head,
        pad_id=facts.pad_id,
        row_length=row_length,
        dtype=id_dtype(facts.vocabulary_size),
    )


def lay_out(pieces: Pieces, columns: Columns, frame: Frame, ledger: Ledger) -> Block:
    """Puts pieces into rows.

    Args:
        columns: (T,) by name; where a row has no document token, `input_ids` has the frame's ids, others have 0.
        ledger: told of the tokens added and of padding.

    About 20 ns a token: one gather and one scatter.
    """
    length, before, join = frame.row_length, len(frame.prefix), len(frame.join)
    rows = int(pieces.row[-1]) + 1 if len(pieces.row) else 0
    first = np.ones(len(pieces.row), bool)
    first[1:] = np.diff(pieces.row) != 0
    ends = np.cumsum(pieces.tokens + join)
    base = (ends - pieces.tokens)[first]
    start = before + ends - pieces.tokens - base[pieces.row]
    num_tokens = np.zeros(rows, np.int64)
    num_tokens[pieces.row] = start + pieces.tokens + len(frame.suffix)  # the last piece of a row has the last word

    # One index per token: lengths [3, 2] to positions 1 and 9 -> [1 2 3 9 10]
    total = int(pieces.tokens.sum())
    within = np.arange(total) - np.repeat(np.cumsum(pieces.tokens) - pieces.tokens, pieces.tokens)
    to = within + np.repeat(pieces.row * length + start, pieces.tokens)
    origin = within + np.repeat(pieces.source, pieces.tokens)
    made: Columns = {}
    for name, values in columns.items():
        row = np.zeros(rows * length, values.dtype)
        if name == "input_ids":
            row = np.full(rows * length, frame.pad_id, frame.dtype)
        row[to] = values[origin]
        made[name] = row.reshape(rows, length)
    ids = made["input_ids"]
    ids[:, :before] = frame.prefix
    joints = np.flatnonzero(~first)
    if join and len(joints):
        at = (pieces.row * length + start - join)[joints]
        ids.reshape(-1)[at[:, None] + np.arange(join)] = frame.join
    if frame.suffix:
        at = np.arange(rows) * length + num_tokens - len(frame.suffix)
        ids.reshape(-1)[at[:, None] + np.arange(len(frame.suffix))] = frame.suffix
    count_frame(ledger, frame, rows, len(joints), rows * length - int(num_tokens.sum()))
    return Block(
        {**made, **mask_columns(num_tokens, length)},
        Segments(pieces.row, start, pieces.tokens, pieces.document, pieces.offset, pieces.total),
    )


def mask_columns(num_tokens: Integers, length: int) -> Columns:
    """`attention_mask` (R, L) and `num_tokens` (R,)."""
    return {
        "attention_mask": (np.arange(length) < num_tokens[:, None]).view(np.uint8),
        "num_tokens": num_tokens.astype(np.uint16),
    }


def count_frame(ledger: Ledger, frame: Frame, rows: int, joints: int, padding: int) -> None:
    """Enters what rows have beside their documents."""
    ledger.tokens.added["template"] += rows * (len(frame.prefix) + len(frame.suffix)) + joints * frame.head
    if separators := joints * (len(frame.join) - frame.head):
        ledger.tokens.added["separators"] += separators
    ledger.counts["padding"] += padding


def document_lengths(segments: Segments, num_tokens: NDArray[Any], slots: int, head: int = 0) -> NDArray[np.uint16]:
    """Tokens of each document of each row, filled up with 0.

    What stands between two documents belongs to the first of them, but for its last `head` ids; the template belongs to the
    documents beside it. So the lengths of a row sum to its `num_tokens`.

    Returns:
        uint16 (R, slots).
    """
    first = np.ones(len(segments.row), bool)
    first[1:] = np.diff(segments.row) != 0
    begins = np.where(first, 0, segments.start - head)
    last = np.append(first[1:], True)[: len(first)]
    ends = np.where(last, num_tokens[segments.row], np.append(begins[1:], 0))
    index = np.arange(len(first)) - np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))
    lengths = np.zeros((len(num_tokens), slots), np.uint16)
    # A row may hold no document at all: a separator alone, where documents were cut before and after it.
    lengths[:, 0] = num_tokens
    lengths[segments.row, index] = ends - begins
    return lengths


class RowBlocks:
    """Collects blocks of any number of rows and gives blocks of exactly `rows`, the last one with what is left."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._held: list[Block] = []
        self._count = 0

    def add(self, block: Block) -> Iterator[Block]:
        if not block.rows:
            return
        self._held.append(block)
        self._count += block.rows
        if self._count < self._rows:
            return
        whole = _joined(self._held)
        cut = self._count // self._rows * self._rows
        for first in range(0, cut, self._rows):
            yield _rows_of(whole, first, first + self._rows)
        self._held = [_rows_of(whole, cut, self._count)] if cut < self._count else []
        self._count -= cut

    def finish(self) -> Iterator[Block]:
        if self._held:
            yield _joined(self._held)
        self._held, self._count = [], 0


def _joined(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    firsts = np.cumsum([0, *(b.rows for b in blocks[:-1])])
    segments = Segments(*(np.concatenate(values) for values in zip(*(b.segments for b in blocks), strict=True)))
    row = np.concatenate([b.segments.row + first for b, first in zip(blocks, firsts.tolist(), strict=True)])
    columns = {name: np.concatenate([b.columns[name] for b in blocks]) for name in blocks[0].columns}
    return Block(columns, segments._replace(row=row))


def _rows_of(block: Block, first: int, last: int) -> Block:
    if first == 0 and last == block.rows:
        return block
    return Block({name: c[first:last] for name, c in block.columns.items()}, block.segments.of_rows(first, last))
