"""Data sets behind URLs: shards are fetched whole into a local folder of bounded size, checked, and mapped from there.

Files in the cache are named by their sha256: so a shard is fetched once for all processes of a host and all data sets that have it,
and what changed under an old name is never mistaken for it. The shards least recently used go first when space is needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError, DataError
from clozeline.store.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from mmap import mmap

    from clozeline.store.manifest import Manifest, ShardEntry

_PIECE = 8 << 20  # bytes read at once
_FETCHERS = 4  # shards fetched at the same time


def is_url(path: object) -> bool:
    return "://" in str(path)


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheOptions:
    """Where shards behind URLs are kept.

    Attributes:
        folder: None for the environment's CLOZELINE_CACHE, else `~/.cache/clozeline`.
        max_bytes: of all shards in it together.
    """

    folder: str | os.PathLike[str] | None = None
    max_bytes: int = 64 << 30

    def __post_init__(self) -> None:
        if self.max_bytes < 1:
            raise ConfigError(f"max_bytes of the cache is {self.max_bytes}: at least 1 byte is needed")

    @property
    def path(self) -> Path:
        return Path(self.folder or os.environ.get("CLOZELINE_CACHE") or Path.home() / ".cache" / "clozeline")


class RemoteFolder(Location):
    """A data set's folder behind a URL that fsspec knows (s3://, gs://, hf://, https://, memory://), for reading.

    Raises:
        DataError: the URL cannot be reached, or a shard that came is not the one that the manifest names.
    """

    def __init__(self, url: str, options: CacheOptions) -> None:
        super().__init__(options.path)
        self.url, self._options = url.rstrip("/"), options
        self._entries: dict[str, ShardEntry] = {}
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def __str__(self) -> str:
        return self.url

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def expect(self, manifest: Manifest) -> None:
        """Tells which files are shards, and what they must be."""
        self._entries = {entry.file: entry for entry in (*manifest.shards, *manifest.raw)}

    # What a Location can do

    def exists(self, name: str = "") -> bool:
        with self._reaching(name):
            files, root = self._files()
            return bool(files.exists(f"{root}/{name}".rstrip("/")))

    def read(self, name: str) -> bytes:
        with self._reaching(name):
            files, root = self._files()
            content: bytes = files.cat_file(f"{root}/{name}")
            return content

    def map(self, name: str) -> mmap | bytes:
        return Location(self.path).map(self._fetch(name))

    def prefetch(self, names: Iterable[str]) -> None:
        """Starts to fetch, on threads, shards that are soon needed."""
        missing = [n for n in names if not (self.path / self._entries[n].sha256).exists()]
        if not missing:
            return
        if self._pool is None or self._pool[0] != os.getpid():  # threads do not survive a fork
            self._pool = os.getpid(), ThreadPoolExecutor(_FETCHERS, "clozeline-fetch")
        for name in missing:
            self._pool[1].submit(self._fetch, name)

    # The cache

    def _fetch(self, name: str) -> str:
        """The name in the cache of a shard, which is fetched when it is not there."""
        entry = self._entries[name]
        if entry.bytes > self._options.max_bytes:
            raise ConfigError(
                f"{self}/{name}: {entry.bytes:,} bytes do not fit into a cache of {self._options.max_bytes:,}: raise max_bytes"
            )
        kept = self.path / entry.sha256
        self.path.mkdir(parents=True, exist_ok=True)
        with _locked(self.path / f"{entry.sha256}.lock"):
            if not kept.exists():
                self._make_room(entry.bytes)
                part = self.path / f"{entry.sha256}.{secrets.token_hex(4)}.part"
                try:
                    self._copy(name, entry, part)
                    part.rename(kept)
                finally:
                    part.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.utime(kept)
        return entry.sha256

    def _copy(self, name: str, entry: ShardEntry, part: Path) -> None:
        digest = hashlib.sha256()
        with self._reaching(name):
            files, root = self._files()
            with files.open(f"{root}/{name}", "rb") as source, part.open("xb") as target:
                while piece := source.read(_PIECE):
                    digest.update(piece)
                    target.write(piece)
        found = (part.stat().st_size, digest.hexdigest())
        if found != (entry.bytes, entry.sha256):
            raise DataError(
                f"{self}/{name}: {found[0]:,} bytes with sha256 {found[1]}, the manifest says {entry.bytes:,} and {entry.sha256}; "
                "restore it or prepare the data again"
            )

    def _make_room(self, needed: int) -> None:
        with _locked(self.path / "lock"):
            kept = [
                (p.stat().st_mtime, p.stat().st_size, p)
                for p in self.path.iterdir()
                if not p.suffix and p.name != "lock"
            ]
            total = sum(size for _, size, _ in kept)
            for _, size, path in sorted(kept):
                if total + needed <= self._options.max_bytes:
                    return
                path.unlink(missing_ok=True)  # who has it mapped keeps it until they let go
                total -= size

    def _files(self) -> tuple[Any, str]:
        import fsspec

        files, root = fsspec.core.url_to_fs(self.url)
        return files, root

    @contextlib.contextmanager
    def _reaching(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise DataError(f"{self}/{name}: is not there") from error
        except (OSError, ValueError, ImportError) as error:
            raise DataError(f"{self}/{name}: cannot be reached ({type(error).__name__}: {error})") from error
        except Exception as error:  # clients of object stores raise classes of their own
            raise DataError(f"{self}/{name}: cannot be read ({type(error).__name__}: {error})") from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One thread of one process of this host at a time."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
