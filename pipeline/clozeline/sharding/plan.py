"""Decides which bytes of which files make up each shard, from the input alone."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from clozeline.sharding.read import FileReader
from clozeline.store.ledger import Ledger
from clozeline.store.sections import timed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clozeline.sharding.files import InputFile
    from clozeline.sharding.options import ReadOptions
    from clozeline.store.documents import Documents

MIB = 2**20
_FEW_SHARDS = 8  # that many shards at least, so that a small corpus feeds several workers


@dataclass(frozen=True, slots=True)
class Segment:
    """A byte range of one file, in the file's own offsets."""

    file: InputFile
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRanges:
    """The documents of some consecutive shards, straight from the input files.

    Attributes:
        first: index of the first of these shards.
        segments: for each shard, the ranges that it is made of.
    """

    first: int
    segments: tuple[tuple[Segment, ...], ...]
    options: ReadOptions

    @property
    def shards(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.first + len(self.segments)))

    def read(self) -> Iterator[tuple[int, Ledger, Iterator[Documents]]]:
        readers: dict[str, FileReader] = {}

        def documents(segments: tuple[Segment, ...], ledger: Ledger) -> Iterator[Documents]:
            for segment in segments:
                if segment.file.path not in readers:
                    readers.clear()  # files come in order: those before are done with
                    readers[segment.file.path] = FileReader(segment.file, self.options)
                yield from readers[segment.file.path].documents(segment.start, segment.stop, ledger)

        for shard, segments in zip(self.shards, self.segments, strict=True):
            ledger = Ledger()
            yield shard, ledger, timed("read", documents(segments, ledger))


def shard_count(total_bytes: int, num_shards: int | None, shard_bytes: int) -> int:
    """How many shards an input makes: as asked, else by bytes alone."""
    if num_shards is not None:
        return num_shards
    return max(1, -(-total_bytes // shard_bytes), min(_FEW_SHARDS, -(-total_bytes // MIB)))


def plan_ranges(files: Sequence[InputFile], count: int, options: ReadOptions) -> list[FileRanges]:
    """Shard k of `count` holds the documents that start in the k-th part of the concatenated input.

    Shards come in groups that are read in one pass: a file that must be read from its beginning is not read once more for
    each of many shards that it holds.
    """
    ends = list(accumulate(file.bytes for file in files))
    total = ends[-1] if ends else 0
    shards: list[tuple[Segment, ...]] = []
    for k in range(count):
        start, stop = k * total // count, (k + 1) * total // count
        ranges: list[Segment] = []
        i = bisect_right(ends, start)
        while start < stop:
            file, begin = files[i], ends[i] - files[i].bytes
            last = min(stop, ends[i])
            if last > start:
                ranges.append(Segment(file, start - begin, last - begin))
            start, i = last, i + 1
        shards.append(tuple(ranges))

    groups: list[FileRanges] = []
    open_file: str | None = None  # the sequential file that the group before ends in
    for k, segments in enumerate(shards):
        first = segments[0].file if segments else None
        if first is not None and first.path == open_file:
            groups[-1] = FileRanges(first=groups[-1].first, segments=(*groups[-1].segments, segments), options=options)
        else:
            groups.append(FileRanges(first=k, segments=(segments,), options=options))
        # Go on in the same pass only where this shard lies wholly in a file that cannot be entered in the middle: a boundary
        # shard ends a group, so that neighbouring large files are read side by side.
        lies_in_one = len(segments) == 1 and first is not None and not first.seekable and not first.rows
        open_file = first.path if lies_in_one and first is not None else None
    return groups
