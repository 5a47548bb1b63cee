"""Data sets behind URLs: shards are fetched whole into a local folder of bounded size, checked, and mapped from there.

Files in the cache are named by their sha256: so a shard is fetched once for all processes of a host and all data sets that have it,
and what changed under an old name is never mistaken for it. The shards least recently used go first when space is needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from clozeline.errors import ClozelineError, ConfigError, DataError
from clozeline.store.location import Location
from clozeline.store.manifest import NAME
from clozeline.store.remote import file_system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from mmap import mmap

    from clozeline.store.manifest import Manifest, ShardEntry

_PIECE = 8 << 20  # bytes read at once
_FETCHERS = 4  # shards fetched ahead at the same time
_FIRST_WAIT = 0.5  # seconds before the second attempt; twice as long before each further one
_POLL = 0.05  # seconds
_LOCK = "lock"

T = TypeVar("T")


def is_url(path: object) -> bool:
    return "://" in str(path)


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheOptions:
    """Where shards behind URLs are kept.

    Attributes:
        folder: None for the environment's CLOZELINE_CACHE, else `~/.cache/clozeline`.
        max_bytes: of all shards in it together.
        attempts: how often a read that fails is tried, with 0.5, 1, 2, 4, ... seconds between.
    """

    folder: str | os.PathLike[str] | None = None
    max_bytes: int = 64 << 30
    attempts: int = 5

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"attempts of the cache is {self.attempts}: at least 1 is needed")
        if self.max_bytes < 1:
            raise ConfigError(f"max_bytes of the cache is {self.max_bytes}: at least 1 byte is needed")

    @property
    def path(self) -> Path:
        return Path(self.folder or os.environ.get("CLOZELINE_CACHE") or Path.home() / ".cache" / "clozeline")


class RemoteFolder(Location):
    """A data set's folder behind a URL that fsspec knows (s3://, gs://, hf://, https://, memory://), for reading.

    Raises:
        DataError: the URL cannot be reached, or a shard that came is not the one that the manifest names.
        ConfigError: a URL of a kind that is not known, or a cache that cannot be used.
    """

    def __init__(self, url: str, options: CacheOptions) -> None:
        super().__init__(options.path)
        self.url, self._options = url.rstrip("/"), options
        self._entries: dict[str, ShardEntry] = {}
        self._wanted: deque[str] = deque()
        self._fetchers: list[threading.Thread] = []

    def __str__(self) -> str:
        return self.url

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_wanted": deque(), "_fetchers": []}

    def expect(self, manifest: Manifest) -> None:
        """Tells which files are shards, and what they must be."""
        self._entries = {entry.file: entry for entry in (*manifest.shards, *manifest.raw)}

    # What a Location can do

    def exists(self, name: str = "") -> bool:
        return self._patiently(name, _begins if name == NAME else lambda files, path: bool(files.exists(path)))

    def read(self, name: str) -> bytes:
        return self._patiently(name, lambda files, path: bytes(files.cat_file(path)))

    def map(self, name: str) -> mmap | bytes:
        return self._kept(name, Location(self.path).map)

    def sha256(self, name: str) -> str:
        return self._kept(name, Location(self.path).sha256)

    # The cache

    def prefetch(self, names: Iterable[str]) -> None:
        """Starts to fetch, on threads, shards that are soon needed, in this order; what was wanted before is forgotten.

        Failures are not told here: who needs the shard meets them.
        """
        self._wanted = deque(n for n in names if not (self.path / self._entries[n].sha256).exists())
        self._fetchers = [t for t in self._fetchers if t.is_alive()]
        for _ in range(min(_FETCHERS, len(self._wanted)) - len(self._fetchers)):
            self._fetchers.append(threading.Thread(target=self._fetch_wanted, name="clozeline-fetch", daemon=True))
            self._fetchers[-1].start()

    def _fetch_wanted(self) -> None:
        with contextlib.suppress(IndexError, ClozelineError):
            while True:
                self._fetch(self._wanted.popleft())

    def _kept(self, name: str, use: Callable[[str], T]) -> T:
        """What comes of a shard's copy in the cache, given the copy's name."""
        while True:
            kept = self._fetch(name)
            with contextlib.suppress(FileNotFoundError):  # another process has made room in the meantime
                return use(kept)

    def _fetch(self, name: str) -> str:
        """The name in the cache of a shard, which is fetched when it is not there."""
        entry = self._entries[name]
        if entry.bytes > self._options.max_bytes:
            raise ConfigError(
                f"{self}/{name}: {entry.bytes:,} bytes do not fit into a cache of {self._options.max_bytes:,}: raise max_bytes"
            )
        kept, part = self.path / entry.sha256, self.path / f"{entry.sha256}.part"
        with _usable(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with _locked(self.path / f"{entry.sha256}.lock"):
                if not kept.exists():
                    self._reserve(part, entry.bytes)
                    try:
                        self._patiently(name, lambda files, path: self._copy(files, path, entry, part))
                        with _locked(self.path / _LOCK):
                            part.rename(kept)
                    finally:
                        with _locked(self.path / _LOCK):
                            part.unlink(missing_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    os.utime(kept)
        return entry.sha256

    def _copy(self, files: Any, path: str, entry: ShardEntry, part: Path) -> None:
        digest, count = hashlib.sha256(), 0
        with files.open(path, "rb") as source, part.open("r+b", buffering=0) as target:
            while piece := source.read(_PIECE):
                digest.update(piece)
                count += len(piece)
                if count <= entry.bytes:
                    _write(target, piece)
        if count < entry.bytes:
            raise ConnectionError(f"{count:,} bytes came, the manifest says {entry.bytes:,}")
        if (count, digest.hexdigest()) != (entry.bytes, entry.sha256):
            raise DataError(
                f"{self}/{entry.file}: {count:,} bytes with sha256 {digest.hexdigest()}, the manifest says {entry.bytes:,} and "
                f"{entry.sha256}; restore it or prepare the data again"
            )

    def _reserve(self, part: Path, size: int) -> None:
        """Makes the file that a shard is fetched into, as long as the shard, once there is room for it."""
        while True:
            with _locked(self.path / _LOCK):
                part.unlink(missing_ok=True)  # what a killed process left
                if self._make_room(size):
                    with part.open("wb") as file:
                        file.truncate(size)
                    return
            time.sleep(_POLL)  # what is being fetched can go when it is complete

    def _make_room(self, needed: int) -> bool:
        """Removes the shards least recently used as far as needed; False where only what is being fetched is left."""
        for part in self.path.glob("*.part"):
            if _is_free(part.with_suffix(".lock")):
                part.unlink(missing_ok=True)  # of a process that was killed
        files = [(p.stat(), p) for p in self.path.iterdir() if p.suffix != ".lock" and p.name != _LOCK]
        total = sum(stat.st_size for stat, _ in files)
        kept = sorted((stat.st_mtime, stat.st_size, p) for stat, p in files if not p.suffix)
        for _, size, path in kept:
            if total + needed <= self._options.max_bytes:
                break
            path.unlink(missing_ok=True)  # who has it mapped keeps it until they let go
            total -= size
        return total + needed <= self._options.max_bytes

    def _patiently(self, name: str, read: Callable[[Any, str], T]) -> T:
        """What a read of a remote file gives, tried again when it fails in a way that may pass.

        Args:
            read: called with a file system and the file's path there.

        Raises:
            DataError: there is no such file, it may not be read, or all attempts failed.
        """
        at, attempts = f"{self}/{name}".rstrip("/"), self._options.attempts
        for attempt in range(attempts):
            if attempt:
                time.sleep(_FIRST_WAIT * 2 ** (attempt - 1))
            try:
                files, root = file_system(self.url)
                return read(files, f"{root}/{name}".rstrip("/"))
            except ClozelineError:
                raise
            except FileNotFoundError as error:
                raise DataError(f"{at}: is not there") from error
            except PermissionError as error:
                raise DataError(f"{at}: may not be read ({error}); give this process the credentials") from error
            except Exception as error:  # clients of object stores raise classes of their own
                failure = error
        raise DataError(
            f"{at}: cannot be read, tried {attempts} times ({type(failure).__name__}: {failure}); look to the network, or that "
            "the file is whole"
        ) from failure


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One thread of one process of this host at a time."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _begins(files: Any, path: str) -> bool:
    """Whether there is such a file, by its first byte: `exists` of some file systems takes any failure for absence."""
    try:
        files.cat_file(path, start=0, end=1)
    except FileNotFoundError:
        return False
    return True


def _is_free(path: Path) -> bool:
    """Whether nobody has this lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{folder}: the cache cannot be used ({error.strerror or error}): make room, or choose another folder"
        ) from error


def _write(target: BinaryIO, piece: bytes) -> None:
    with _usable(Path(target.name).parent):
        view = memoryview(piece)
        while view:
            view = view[target.write(view) :]
