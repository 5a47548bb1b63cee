"""Plain text out of web archives: the `conversion` records of WET files (ISO 28500, section 6.7), as Common Crawl publishes them.

The format is headers, a blank line, and as many bytes as `Content-Length` says: too little to need a library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from clozeline.sharding.records import Records, whole_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_HEADER_BYTES = 2**20
_CHUNK = 2**18


class WarcError(ValueError):
    """Something that is no WARC record; the message says where."""


def warc_records(stream: BinaryIO, limit: int, other: Callable[[], None]) -> Iterator[Records]:
    """One record for each conversion of a page to text; a record starts behind its headers.

    Args:
        stream: decompressed, from its beginning.
        limit: bytes; a longer text comes in pieces.
        other: called for each record of another kind, which holds no text.

    Raises:
        WarcError: no WARC record where one is expected.
        EOFError: the last record is cut short.
    """
    position = 0
    while line := stream.readline(_MAX_HEADER_BYTES):
        if not line.strip():  # two blank lines end a record
            position += len(line)
            continue
        if not line.startswith(b"WARC/"):
            raise WarcError(f"byte {position:,}: no WARC record ({line[:20]!r} where WARC/1.0 is expected)")
        start = position
        position += len(line)
        headers: dict[bytes, bytes] = {}
        while (line := stream.readline(_MAX_HEADER_BYTES)).strip():
            position += len(line)
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
            if position - start > _MAX_HEADER_BYTES:
                raise WarcError(f"byte {start:,}: headers of more than {_MAX_HEADER_BYTES:,} bytes")
        position += len(line)
        size = headers.get(b"content-length", b"")
        if not size.isdigit() or len(size) > 18:
            raise WarcError(f"byte {start:,}: no Content-Length ({size[:20]!r})")
        left = int(size)

        def read(wanted: int) -> bytes:
            nonlocal left
            block = stream.read(min(wanted, left))
            if left and not block:
                raise EOFError("the last record is shorter than its Content-Length")
            left -= len(block)
            return block

        if headers.get(b"warc-type", b"").lower() == b"conversion":
            if not left:
                yield Records([start], [start], [b""])
            yield from whole_record(read, position, limit)
        else:
            other()
            while left:
                read(_CHUNK)
        position += int(size)
