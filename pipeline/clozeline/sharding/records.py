"""Cuts a stream of bytes into records: lines, or runs of lines between blank lines.

A record belongs to the shard in whose byte range it starts, wherever it ends. A worker that begins in the middle of a
file finds the first record that starts in its range and reads past the end of the range to finish the last one, so the
records of all ranges are exactly the records of the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK_BYTES = 2**20
_BLANK = b" \t\r\f\v"
_BLANK_LINES = re.compile(rb"\n(?:[ \t\r\f\v]*\n)+")
_LEADING_BLANK_LINES = re.compile(rb"(?:[ \t\r\f\v]*\n)*")
_BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Records:
    """Consecutive records of a file.

    Attributes:
        starts: byte offset of the start of each record: which shard it belongs to.
        offsets: byte offset of what is here. It differs from the start where a record longer than the limit was cut:
            its second and later pieces keep the record's start.
        raws: the bytes, without the line feed or blank lines after them.
    """

    starts: list[int]
    offsets: list[int]
    raws: list[bytes]

    def clip(self, start: int, stop: int) -> Records:
        """Those that start in [start, stop). Starts never decrease."""
        if not self.starts or (self.starts[0] >= start and self.starts[-1] < stop):
            return self
        keep = [i for i, s in enumerate(self.starts) if start <= s < stop]
        return Records([self.starts[i] for i in keep], [self.offsets[i] for i in keep], [self.raws[i] for i in keep])


def line_records(read: Callable[[int], bytes], position: int, limit: int) -> Iterator[Records]:
    """One record a line feed; nothing else ends a line.

    Args:
        read: gives up to that many bytes, none at the end.
        position: byte offset of what `read` gives first.
        limit: bytes; a longer record comes in pieces.
    """
    pending, start = b"", position  # `position` is that of `pending`; `start` that of the record it belongs to
    while block := read(BLOCK_BYTES):
        data = pending + block
        end = data.rfind(b"\n")
        if end >= 0:
            raws = data[:end].split(b"\n")
            offsets = list(accumulate((len(raw) + 1 for raw in raws[:-1]), initial=position))
            yield Records([start, *offsets[1:]], offsets, raws)
            position += end + 1
            start = position
            pending = data[end + 1 :]
        else:
            pending = data
        if len(pending) > limit:
            pieces, pending = cut_pieces(pending, limit)
            for piece in pieces:
                yield Records([start], [position], [piece])
                position += len(piece)
    if pending:
        yield Records([start], [position], [pending])


def paragraph_records(read: Callable[[int], bytes], position: int, limit: int) -> Iterator[Records]:
    """One record for each run of lines between blank lines (lines of white space only); arguments as `line_records`."""
    pending, start = b"", position
    fresh = True  # whether `pending` is the start of a record, so that blank lines before it mean nothing
    while block := read(BLOCK_BYTES):
        data = pending + block
        if fresh:
            if position == 0 and data.startswith(_BOM):
                data, position = data[len(_BOM) :], len(_BOM)
            skip = _LEADING_BLANK_LINES.match(data).end()  # type: ignore[union-attr]  # it matches the empty string
            data, position = data[skip:], position + skip
            start = position
        first, records = 0, Records([], [], [])
        for blank in _BLANK_LINES.finditer(data):
            if not data[blank.end() : blank.end() + 1024].strip(_BLANK) and not data[blank.end() :].strip(_BLANK):
                break  # the blank lines may go on in the next block
            records.starts.append(start if not first else position + first)
            records.offsets.append(position + first)
            records.raws.append(data[first : blank.start()])
            first = blank.end()
        if records.raws:
            yield records
            position += first
            start = position
        pending = data[first:]
        fresh = not pending.strip(_BLANK + b"\n")
        if len(pending) > limit:
            pieces, pending = cut_pieces(pending, limit)
            for piece in pieces:
                yield Records([start], [position], [piece])
                position += len(piece)
    pending = pending.rstrip(_BLANK + b"\n")
    if pending:
        yield Records([start], [position], [pending])


def whole_record(read: Callable[[int], bytes], position: int, limit: int) -> Iterator[Records]:
    """Everything as one record; arguments as `line_records`."""
    pending, start = b"", position
    while block := read(BLOCK_BYTES):
        pending += block
        if len(pending) > limit:
            pieces, pending = cut_pieces(pending, limit)
            for piece in pieces:
                yield Records([start], [position], [piece])
                position += len(piece)
    if pending:
        yield Records([start], [position], [pending])


def cut_pieces(data: bytes, limit: int) -> tuple[list[bytes], bytes]:
    """Pieces of at most `limit` bytes and the rest, which is no longer than that.

    Cuts after white space where the second half of a piece has any, else before a character, never inside one.
    """
    pieces, start = [], 0
    while len(data) - start > limit:
        for mark in (b"\n", b" "):
            cut = data.rfind(mark, start + limit // 2, start + limit) + 1
            if cut:
                break
        else:
            cut = start + limit
            while cut > start + limit - 4 and data[cut] & 0xC0 == 0x80:  # a continuation byte of UTF-8
                cut -= 1
        pieces.append(data[start:cut])
        start = cut
    return pieces, data[start:]


def range_records(file: BinaryIO, start: int, stop: int, limit: int, *, paragraphs: bool) -> Iterator[Records]:
    """The records of a seekable file that start in [start, stop)."""
    begin = _scan_start(file, start, paragraphs=paragraphs)
    file.seek(begin)
    cut = paragraph_records if paragraphs else line_records
    for records in cut(file.read, begin, limit):
        mine = records.clip(start, stop)
        if mine.raws:
            yield mine
        if records.starts[-1] >= stop:
            return


def _scan_start(file: BinaryIO, start: int, *, paragraphs: bool) -> int:
    """A place at or before `start` from which every record that starts at or after `start` is seen whole.

    What is read first from there may be the rest of an earlier record, which starts before `start` and is clipped. For
    lines the byte before will do. For paragraphs it must be known whether the line before is blank, so: the start of that
    line, or a place in it with something other than white space behind it.
    """
    if start == 0:
        return 0
    if not paragraphs:
        return start - 1
    window = 4096
    while window < start:
        file.seek(start - window)
        before = file.read(window)
        line = before.rfind(b"\n", 0, window - 1)
        if line >= 0:
            return start - window + line + 1
        if before.strip(_BLANK + b"\n"):
            return start - window
        window *= 2
    return 0
