"""The packers against the plainest program that does the same, however documents arrive."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeline.packing.best_fit import best_fit, best_fit_decreasing
from clozeline.packing.concat import ConcatPacker
from clozeline.packing.documents import OneDocument
from clozeline.packing.pieces import PiecePacker
from clozeline.packing.rows import Block, Frame, RowBlocks
from clozeline.packing.sentences import WholeSentences
from clozeline.packing.tokens import whole_documents
from clozeline.store.ledger import Ledger

CLS, SEP, PAD = 1, 2, 0
DOCUMENT = st.lists(st.integers(1, 30), min_size=1, max_size=6)  # tokens of its sentences
DOCUMENTS = st.lists(DOCUMENT, min_size=1, max_size=25)
LENGTHS = st.integers(8, 24)


def frame_of(length: int, *, separator: bool = True, head: bool = False) -> Frame:
    join = ((SEP,) if separator else ()) + ((CLS,) if head else ())
    return Frame(
        prefix=(CLS,), suffix=(SEP,), join=join, head=int(head), pad_id=PAD, row_length=length, dtype=np.uint32
    )


def tokens(documents: list[list[int]]) -> list[list[list[int]]]:
    """Sentences of documents; every token is another number."""
    fresh = iter(range(10, 10**6))
    return [[[next(fresh) for _ in range(n)] for n in document] for document in documents]


def packed(
    make: Callable[[Ledger], Any], documents: list[list[list[int]]], batches: list[int], block_rows: int = 10**9
) -> tuple[list[list[int]], Ledger]:
    """The rows, without padding, that a packer makes of documents that come in batches of these sizes."""
    ledger = Ledger()
    packer = make(ledger)
    blocks: list[Block] = []
    rows = RowBlocks(block_rows)
    first = 0
    sizes = [*batches, len(documents)]
    while first < len(documents):
        part = documents[first : first + sizes[0]]
        given_tokens = whole_documents(
            {"input_ids": np.array([t for d in part for s in d for t in s], np.uint32)},
            np.array([sum(map(len, d)) for d in part]),
            np.array([len(s) for d in part for s in d]),
            first,
            ledger,
            at_least=1,
            at_most=None,
        )
        for block in packer.add(given_tokens):
            blocks += rows.add(block)
        first += sizes[0]
        sizes = sizes[1:] or sizes
    for block in packer.finish():
        blocks += rows.add(block)
    blocks += rows.finish()
    assert all(block.rows == block_rows for block in blocks[:-1])
    found = []
    for block in blocks:
        for ids, n in zip(block.columns["input_ids"].tolist(), block.columns["num_tokens"].tolist(), strict=True):
            assert set(ids[n:]) <= {PAD}
            found.append(ids[:n])
        assert (np.diff(block.segments.row) >= 0).all()
        for row, start, size, document, offset, total in zip(*(v.tolist() for v in block.segments), strict=True):
            whole = [t for sentence in documents[document] for t in sentence]
            assert len(whole) == total
            assert block.columns["input_ids"][row, start : start + size].tolist() == whole[offset : offset + size]
    ledger.tokens.out += sum(map(len, found))
    ledger.check("here")
    return found, ledger


@settings(max_examples=150, deadline=None)
@given(
    documents=DOCUMENTS,
    length=LENGTHS,
    batches=st.lists(st.integers(1, 5), min_size=1),
    separator=st.booleans(),
    head=st.booleans(),
    drop=st.booleans(),
    block=st.integers(1, 5),
)
def test_concat_is_one_stream_cut_into_rows(
    documents: list[list[int]], length: int, batches: list[int], separator: bool, head: bool, drop: bool, block: int
) -> None:
    frame = frame_of(length, separator=separator, head=head)
    texts = tokens(documents)
    stream: list[int] = []
    for number, document in enumerate(texts):
        stream += (list(frame.join) if number else []) + [t for s in document for t in s]
    content = length - 2
    wanted = [[CLS, *stream[i : i + content], SEP] for i in range(0, len(stream), content)]
    if drop and len(wanted[-1]) < length:
        wanted.pop()
    rows, _ = packed(lambda ledger: ConcatPacker(frame, block, ledger, drop_remainder=drop), texts, batches, block)
    assert rows == wanted


def whole_sentence_rows(texts: list[list[list[int]]], length: int, join: list[int], across: bool) -> list[list[int]]:
    """Sentence by sentence, as the paper describes it."""
    content = length - 2
    rows: list[list[int]] = []
    row: list[int] = []
    for document in texts:
        if row and not across:
            rows.append(row)
            row = []
        opens = True
        for sentence in document:
            for i in range(0, len(sentence), content):
                piece = sentence[i : i + content]
                lead = join if opens and row else []
                if row and len(row) + len(lead) + len(piece) > content:
                    rows.append(row)
                    row, lead = [], []
                row = row + lead + piece
                opens = False
    return [[CLS, *r, SEP] for r in [*rows, row]]


@settings(max_examples=150, deadline=None)
@given(
    documents=DOCUMENTS,
    length=LENGTHS,
    batches=st.lists(st.integers(1, 5), min_size=1),
    across=st.booleans(),
    drop=st.booleans(),
    window=st.integers(60, 200),
    separator=st.booleans(),
)
def test_sentences_go_into_rows_one_by_one(
    documents: list[list[int]],
    length: int,
    batches: list[int],
    across: bool,
    drop: bool,
    window: int,
    separator: bool,
) -> None:
    frame = frame_of(length, separator=separator)
    texts = tokens(documents)
    wanted = whole_sentence_rows(texts, length, list(frame.join), across)
    if across and drop and len(wanted[-1]) < length:
        wanted.pop()
    plan = WholeSentences(across=across, drop_remainder=drop)
    rows, _ = packed(lambda ledger: PiecePacker(plan, frame, ledger, window), texts, batches, 3)
    assert rows == wanted


@settings(max_examples=150, deadline=None)
@given(weights=st.lists(st.integers(1, 30), max_size=40))
def test_best_fit_decreasing_takes_the_fullest_bin_that_has_room(weights: list[int]) -> None:
    room = 30
    bins: list[int] = []  # what is left in each
    for weight in sorted(weights, reverse=True):
        fitting = [left for left in bins if left >= weight]
        if fitting:
            bins.remove(min(fitting))
            bins.append(min(fitting) - weight)
        else:
            bins.append(room - weight)
    found = best_fit_decreasing(np.array(weights, np.int64), room)
    filled = np.bincount(found, weights, minlength=len(bins)).astype(int)
    assert sorted(room - filled) == sorted(bins)


@settings(max_examples=100, deadline=None)
@given(
    documents=DOCUMENTS,
    length=LENGTHS,
    batches=st.lists(st.integers(1, 5), min_size=1),
    window=st.integers(60, 200),
)
def test_best_fit_cuts_no_document_that_fits_in_a_row(
    documents: list[list[int]], length: int, batches: list[int], window: int
) -> None:
    texts = tokens(documents)
    frame = frame_of(length)
    rows, _ = packed(lambda ledger: PiecePacker(best_fit, frame, ledger, window), texts, batches, 4)
    again, _ = packed(lambda ledger: PiecePacker(best_fit, frame, ledger, window), texts, [len(texts)], 4)
    assert rows == again
    for document in texts:
        ids = [t for s in document for t in s]
        content = length - 2
        for i in range(0, len(ids), content):
            piece = ids[i : i + content]
            assert sum(any(r[k : k + len(piece)] == piece for k in range(len(r))) for r in rows) == 1
    # No two rows of a window could be one: best fit would have put them together.
    if sum(map(sum, documents)) < window:
        rooms = sorted(len(r) - 2 for r in rows)
        assert all(a + 1 + b > length - 2 for a, b in pairwise(rooms))


@settings(max_examples=100, deadline=None)
@given(
    documents=DOCUMENTS,
    length=LENGTHS,
    stride=st.integers(0, 5),
    shortest=st.integers(1, 6),
    window=st.integers(60, 200),
)
def test_pieces_of_a_document_overlap_by_the_stride(
    documents: list[list[int]], length: int, stride: int, shortest: int, window: int
) -> None:
    texts = tokens(documents)
    wanted = []
    content = length - 2
    for document in texts:
        ids = [t for s in document for t in s]
        covered = start = 0
        while covered < len(ids):
            piece = ids[start : start + content]
            fresh = start + len(piece) - covered
            if start == 0 or fresh >= shortest:
                wanted.append([CLS, *piece, SEP])
            covered += fresh
            start += content - stride
    plan = OneDocument(stride=stride, min_tokens=shortest)
    rows, _ = packed(lambda ledger: PiecePacker(plan, frame_of(length), ledger, window), texts, [3], 2)
    assert rows == wanted
