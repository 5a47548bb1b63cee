"""The rows of a token data set under one numbering, and their columns, gathered a block at a time.

Shapes: B rows asked for, L positions per row, S shards.
"""

from __future__ import annotations

import os
import resource
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from clozeline.errors import ConfigError, DataError
from clozeline.store.dataset import Data
from clozeline.streaming.cache import CacheOptions, RemoteFolder, is_url

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.store.manifest import Metadata
    from clozeline.store.sparse import Shard
    from clozeline.streaming.buffers import Buffers

_OTHER_FILES = 512

Copy = int | Literal["all", "epoch"]


class Identity(NamedTuple):
    """Where rows stand, each int64 (B,).

    Attributes:
        number: of the row in the data set (in the copy, where the stream takes one).
        place: index of the row's file in the manifest.
        shard: index of the packed shard; with the copy and the row number it identifies a row's masks.
        row: number within the shard.
    """

    number: NDArray[np.int64]
    place: NDArray[np.int64]
    shard: NDArray[np.int64]
    row: NDArray[np.int64]


class TokenRows:
    """The rows of a data set, numbered from 0 in the order of the manifest.

    Args:
        path: a packed or masked data set: a folder, or a URL that fsspec knows.
        copy: of a data set masked several times: "all" takes the copies together as one data set of K * N rows, "epoch"
            takes copy k mod K in epoch k, a number takes that copy always.
        cache: where shards behind a URL are kept.
        digests: check a shard's sha256 when it is opened.

    Raises:
        DataError: no finished token data set.
        ConfigError: there is no such copy.

    Shards are opened when a row of theirs is first asked for.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        copy: Copy = "all",
        cache: CacheOptions | None = None,
        *,
        digests: bool = False,
    ) -> None:
        self._remote = RemoteFolder(str(path), cache or CacheOptions()) if is_url(path) else None
        self._cache_bytes = (cache or CacheOptions()).max_bytes
        self._mapped: dict[int, int] = {}  # of a remote data set: bytes by place, least recently used first
        self.data = Data(self._remote or path, "packing", "masking", digests=digests)
        entries = self.data.manifest.shards
        if self._remote is not None:
            self._remote.expect(self.data.manifest)
        _allow_open_files(len(entries) * (2 if self.data.manifest.raw else 1))
        self._shard = np.array([e.shard for e in entries], np.int64)
        copies = np.array([e.copy for e in entries], np.int64)
        self.copies = int(copies.max(initial=0)) + 1
        if copy not in ("all", "epoch") and not (isinstance(copy, int) and 0 <= copy < self.copies):
            raise ConfigError(
                f"copy is {copy!r}: {path} has {self.copies}; use 'all', 'epoch', or a number below {self.copies}"
            )
        self.copy = copy
        self._length = np.array([e.row_length or 0 for e in entries], np.int64)
        self.several_lengths = len(set(self._length.tolist())) > 1
        rows = np.array([e.rows for e in entries], np.int64)
        chosen = (
            [np.arange(len(entries))] if copy == "all" else [np.flatnonzero(copies == c) for c in range(self.copies)]
        )
        self._places = chosen  # for each choice of a copy the files
        self._ends = [np.cumsum(rows[places]) for places in chosen]
        if len({int(ends[-1]) if len(ends) else 0 for ends in self._ends}) > 1:
            raise DataError(f"{path}: its copies have different numbers of rows; prepare the data again")

    @property
    def metadata(self) -> Metadata:
        return self.data.metadata

    @property
    def count(self) -> int:
        """N: rows in an epoch."""
        ends = self._ends[0]
        return int(ends[-1]) if len(ends) else 0

    @property
    def shards(self) -> int:
        """Files that an epoch reads."""
        return len(self._places[0])

    def _choice(self, epoch: int) -> int:
        if self.copy == "all":
            return 0
        return epoch % self.copies if self.copy == "epoch" else int(self.copy)

    def identify(self, rows: NDArray[np.int64], epoch: int) -> Identity:
        """Where the rows of these numbers stand in an epoch."""
        choice = self._choice(epoch)
        ends = self._ends[choice]
        index = np.searchsorted(ends, rows, "right")
        place = self._places[choice][index]
        before = np.concatenate([[0], ends[:-1]])
        return Identity(rows, place, self._shard[place], rows - before[index])

    def files(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """L, and the number of rows, of each file that an epoch reads."""
        places, ends = self._places[0], self._ends[0]
        return tuple(self._length[places].tolist()), tuple(np.diff(ends, prepend=0).tolist())

    def prefetch(self, at: Identity) -> None:
        """Starts to fetch what these rows need, where that is behind a URL: as much as fills half of the cache."""
        if self._remote is None:
            return
        manifest, names, total = self.data.manifest, [], 0
        places, first = np.unique(at.place, return_index=True)
        for place in places[np.argsort(first)].tolist():
            total += self._bytes(place)
            if total > self._cache_bytes // 2:
                break
            names += [file.file for file in manifest.files_of(manifest.shards[place])]
        self._remote.prefetch(dict.fromkeys(names))

    def check_cache(self, shards_at_once: int) -> None:
        """Raises ConfigError when a remote data set is read from more shards at once than its cache holds."""
        if self._remote is None:
            return
        largest = sorted(map(self._bytes, range(len(self.data.manifest.shards))), reverse=True)
        needed = sum(largest[:shards_at_once])
        if needed > self._cache_bytes:
            raise ConfigError(
                f"{self._remote}: rows are read from {min(shards_at_once, len(largest))} shards at once, {needed:,} bytes, and "
                f"the cache holds {self._cache_bytes:,}: raise max_bytes of CacheOptions, or use shuffle='blocks' with fewer "
                "window_blocks"
            )

    def _bytes(self, place: int) -> int:
        manifest = self.data.manifest
        return sum(file.bytes for file in manifest.files_of(manifest.shards[place]))

    def _open(self, place: int) -> Shard:
        if self._remote is not None:  # what the cache removes must not stay mapped for ever
            self._mapped[place] = self._mapped.pop(place, 0) or self._bytes(place)
            while sum(self._mapped.values()) > self._cache_bytes:
                oldest = next(iter(self._mapped))
                del self._mapped[oldest]
                self.data.close(oldest)
        return self.data.shard(place)

    def lengths(self, at: Identity) -> NDArray[np.int64]:
        """L of each row: int64 (B,)."""
        return self._length[at.place]

    def columns(self) -> list[str]:
        """Names of the columns that can be gathered; empty for a data set without rows."""
        places = [p for p in self._places[0].tolist() if self.data.manifest.shards[p].rows]
        return self._open(places[0]).columns() if places else []

    def take(
        self, at: Identity, names: list[str], buffers: Buffers, wide: np.dtype[Any] | None = None
    ) -> dict[str, NDArray[Any]]:
        """The columns of rows, in the order given: (B, L) or (B,) each, in the stored integer widths or as `wide`.

        The rows are read shard by shard in the order of the files, so the cost in Python is one step per shard touched.
        """
        count = len(at.row)
        number = at.number
        in_order = bool((number[1:] >= number[:-1]).all())
        order = None if in_order else np.argsort(number)
        places = at.place if order is None else at.place[order]
        sorted_rows = at.row if order is None else at.row[order]
        starts = np.flatnonzero(places[1:] != places[:-1]) + 1
        out: dict[str, NDArray[Any]] = {}
        for first, last in pairwise([0, *starts.tolist(), count]):
            shard = self._open(int(places[first]))
            if not out:
                out = {n: buffers.empty((count, *shard.row_shape(n)), wide or shard.dtype(n)) for n in names}
            where = slice(first, last) if order is None else order[first:last]
            shard.take_into(out, sorted_rows[first:last], where)
        return out


def _allow_open_files(count: int) -> None:
    """Raises this process's own limit of open files, within what the system grants: every shard that is mapped keeps one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + len(os.listdir("/dev/fd")) + _OTHER_FILES  # noqa: PTH208  # names are enough
    if soft != resource.RLIM_INFINITY and soft < needed:
        limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
