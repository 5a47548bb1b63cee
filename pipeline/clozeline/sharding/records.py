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

    Cut = Callable[[Callable[[int], bytes], int, int], Iterator["Records"]]

BLOCK_BYTES = 2**20
_WHITE = b" \t\r\f\v\n"
_BOM = b"\xef\xbb\xbf"  # a line of nothing else, where files were joined, is blank too
_BLANK_LINES = re.compile(rb"\n[ \t\r\f\v\n]*(?:\xef\xbb\xbf[ \t\r\f\v\n]*)*\n")
_LEADING_BLANK_LINES = re.compile(rb"(?:[ \t\r\f\v\n]*(?:\xef\xbb\xbf[ \t\r\f\v\n]*)*\n)?")
_DOC_LINE = re.compile(rb"\n(?=<doc )")
_MARK_BYTES = 6
# Where a record that is too long is cut, best first: after a line feed, a space, or the full stop of scripts without spaces.
_CUT_MARKS = (b"\n", b" ", *(mark.encode() for mark in "\u3002\uff01\uff1f\u3000"))


class EndlessWhiteSpaceError(ValueError):
    """More white space than a document may have bytes, and no line feed: nobody can say what it parts."""


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

    def append(self, start: int, offset: int, raw: bytes) -> None:
        self.starts.append(start)
        self.offsets.append(offset)
        self.raws.append(raw)

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
    while block := read(max(BLOCK_BYTES, len(pending))):  # a long record is not joined ever again
        data = pending + block
        end = data.rfind(b"\n")
        if end >= 0:
            raws = data[:end].split(b"\n")
            offsets = list(accumulate((len(raw) + 1 for raw in raws[:-1]), initial=position))
            yield _no_longer(Records([start, *offsets[1:]], offsets, raws), limit)
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
    """One record for each run of lines between blank lines (lines of white space only); arguments as `line_records`.

    Raises:
        EndlessWhiteSpaceError: more than `limit` bytes of it behind a record.
    """
    pending, start = b"", position
    inside = False  # whether `pending` holds a record that has begun; if not, it is white space
    text = 0  # bytes of `pending` before its last white space: no blank line begins in them
    while block := read(max(BLOCK_BYTES, len(pending))):  # a long record is not joined ever again
        data = pending + block
        first = 0
        if not inside:
            first = _LEADING_BLANK_LINES.match(data).end()  # type: ignore[union-attr]  # it matches the empty string
            start = position + first
        records = Records([], [], [])
        for blank in _BLANK_LINES.finditer(data, max(first, text)):
            records.append(start, position + first, data[first : blank.start()])
            first = blank.end()
            start = position + first
        if records.raws:
            yield _no_longer(records, limit)
        pending, position = data[first:], position + first
        text = _text_length(pending)
        inside = (inside and not first) or text > 0
        if len(pending) > limit:
            # White space at the end may turn out to be blank lines, which are no part of the record: it is not cut yet.
            if len(pending) - text > limit:
                raise EndlessWhiteSpaceError(
                    f"more than {limit:,} bytes of white space from byte {position + text:,} on"
                )
            pieces, rest = cut_pieces(pending[:text], limit)
            for piece in pieces:
                yield Records([start], [position], [piece])
                position += len(piece)
            pending, text = rest + pending[text:], len(rest)
    if inside:
        end = _BLANK_LINES.search(pending + b"\n\n").start()  # type: ignore[union-attr]
        yield _no_longer(Records([start], [position], [pending[:end]]), limit)


def wiki_records(read: Callable[[int], bytes], position: int, limit: int) -> Iterator[Records]:
    """One record for each line that begins with `<doc `, up to the next such line; arguments as `line_records`."""
    pending, start = b"", position
    while block := read(max(BLOCK_BYTES, len(pending))):
        data = pending + block
        records, first = Records([], [], []), 0
        for mark in _DOC_LINE.finditer(data):
            records.append(start, position + first, data[first : mark.start()])
            first = mark.end()
            start = position + first
        if records.raws:
            yield _no_longer(records, limit)
        pending, position = data[first:], position + first
        if len(pending) > limit + _MARK_BYTES:
            pieces, rest = cut_pieces(pending[:-_MARK_BYTES], limit)  # the end may be the beginning of a mark
            for piece in pieces:
                yield Records([start], [position], [piece])
                position += len(piece)
            pending = rest + pending[-_MARK_BYTES:]
    if pending:
        yield _no_longer(Records([start], [position], [pending]), limit)


def whole_record(read: Callable[[int], bytes], position: int, limit: int) -> Iterator[Records]:
    """Everything as one record; arguments as `line_records`."""
    pending, start = b"", position
    while block := read(max(BLOCK_BYTES, len(pending))):  # a long record is not joined ever again
        pending += block
        if len(pending) > limit:
            pieces, pending = cut_pieces(pending, limit)
            for piece in pieces:
                yield Records([start], [position], [piece])
                position += len(piece)
    if pending:
        yield Records([start], [position], [pending])


def cut_pieces(data: bytes, limit: int) -> tuple[list[bytes], bytes]:
    """Pieces of at most `limit` bytes and the rest, which is no longer than that; where they end depends on the bytes before alone.

    Cuts after white space or a full stop where the second half of a piece has any, else before a character, never inside one.
    """
    pieces, start = [], 0
    while len(data) - start > limit:
        for mark in _CUT_MARKS:
            found = data.rfind(mark, start + limit // 2, start + limit)
            if found >= 0:
                cut = found + len(mark)
                break
        else:
            cut = start + limit
            while cut > start + limit - 4 and data[cut] & 0xC0 == 0x80:  # a continuation byte of UTF-8
                cut -= 1
        pieces.append(data[start:cut])
        start = cut
    return pieces, data[start:]


def _text_length(data: bytes) -> int:
    """Bytes before the white space and byte order marks, the last of which may be cut short, that `data` ends with."""
    for part in (_BOM[:2], _BOM[:1]):
        data = data.removesuffix(part)
    data = data.rstrip(_WHITE)
    while data.endswith(_BOM):
        data = data[: -len(_BOM)].rstrip(_WHITE)
    return len(data)


def _no_longer(records: Records, limit: int) -> Records:
    """The same, those longer than `limit` in pieces."""
    if max(map(len, records.raws)) <= limit:
        return records
    result = Records([], [], [])
    for start, offset, raw in zip(records.starts, records.offsets, records.raws, strict=True):
        pieces, rest = cut_pieces(raw, limit)
        for piece in (*pieces, rest):
            result.append(start, offset, piece)
            offset += len(piece)
    return result


def range_records(file: BinaryIO, start: int, stop: int, limit: int, cut: Cut) -> Iterator[Records]:
    """The records of a seekable file that start in [start, stop), as `cut` (one of the functions above) finds them."""
    begin = _scan_start(file, start) if cut is paragraph_records else max(start - 1, 0)
    file.seek(begin)
    for records in cut(file.read, begin, limit):
        mine = records.clip(start, stop)
        if mine.raws:
            yield mine
        # Done when a record starts behind the range, or one from before it reaches past it.
        if records.starts[-1] >= stop or (records.starts[-1] < start and records.offsets[-1] >= stop):
            return


def _scan_start(file: BinaryIO, start: int) -> int:
    """A place at or before `start` from which every paragraph that starts at or after `start` is seen whole.

    What is read first from there may be the rest of an earlier paragraph, which starts before `start` and is clipped. It
    must be known whether the line before `start` is blank, so: the start of that line, or a place in it with something
    other than white space behind it. (For lines, and documents that begin with one, the byte before `start` will do.)
    """
    end = max(start - 1, 0)  # a line feed just before `start` ends the line before it
    while end:
        begin = max(end - 2**16, 0)
        file.seek(begin)
        before = file.read(end - begin)
        line = before.rfind(b"\n")
        if line >= 0:
            return begin + line + 1
        if before.strip(_WHITE):
            return begin
        end = begin
    return 0
