"""Places where data sets live: a folder of named files, written atomically.

Only this module touches the file system on behalf of data sets. `Location` is its whole vocabulary (names, bytes, an
atomic writer, a memory map, a lock), small enough for an object store to offer the same.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from clozeline.errors import DestinationError, JobError
from clozeline.store.sections import section

if TYPE_CHECKING:
    from collections.abc import Iterator

WORK = ".clozeline"  # what an unfinished run keeps beside its shards; gone when the manifest is published
LOCK = "lock"
RUN = "run-"  # with a token: what is being written
_PIECE = 8 << 20  # bytes copied at once


class DigestingFile:
    """A binary file being written that knows how many bytes went in and their sha256."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._sha256 = hashlib.sha256()
        self.bytes = 0
        self.closed = False  # pyarrow asks

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        self._raw.write(view)
        with section("sha256"):
            self._sha256.update(view)
        self.bytes += len(view)
        return len(view)

    def flush(self) -> None:
        """Nothing: what counts is the fsync before publication."""

    def tell(self) -> int:
        return self.bytes

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()


class Location:
    """A local folder; `RemoteLocation` is one behind a URL, and `find_location` gives the one that a path means.

    What is being written lies in `.clozeline/run-TOKEN`, which `lock` makes and `remove_work` takes away. The token goes with the
    location to the workers and to folders inside: a worker that is still at it when its run has ended, or another has begun, can
    publish nothing.
    """

    def __init__(self, path: str | os.PathLike[str], token: str | None = None) -> None:
        self.path = Path(path)
        self._token = token or secrets.token_hex(4)

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Location:
        return Location(self.path / name, self._token)

    @property
    def _work(self) -> Path:
        """The folder of the work on this data set, also seen from inside it."""
        return next((path for path in (self.path, *self.path.parents) if path.name == WORK), self.path / WORK)

    @property
    def _unfinished(self) -> Path:
        return self._work / f"{RUN}{self._token}"

    def _temporary(self, name: str) -> Path:
        return self._unfinished / f"{name.replace('/', '+')}.{os.getpid()}.{secrets.token_hex(4)}"

    def exists(self, name: str = "") -> bool:
        return (self.path / name).exists()

    def is_folder(self) -> bool:
        return self.path.is_dir()

    def remove_folder(self) -> None:
        """Removes the folder, which is empty."""
        self.path.rmdir()

    def names(self) -> list[str]:
        """Names in the folder, sorted; empty where there is no folder."""
        return sorted(p.name for p in self.path.iterdir()) if self.path.is_dir() else []

    def size(self, name: str) -> int:
        """Bytes in a file."""
        return (self.path / name).stat().st_size

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def map(self, name: str) -> mmap.mmap | bytes:
        """The file's bytes without reading them (an empty file has none to map)."""
        with (self.path / name).open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size(name) else b""

    def sha256(self, name: str) -> str:
        with (self.path / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def remove(self, name: str) -> None:
        target = self.path / name
        if target.is_dir() and not target.is_symlink():
            _remove_tree(target)
        else:
            target.unlink(missing_ok=True)

    def remove_work(self) -> None:
        """Removes the folder of the work. Whoever still writes in it finds it gone, and cannot be in the way of its removal."""
        if self._unfinished.is_dir():
            self._unfinished.rename(self._work / "ended")
        self.remove(WORK)

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[DigestingFile]:
        """A file that appears under `name` only when the block ends well: temporary name, fsync, rename.

        The name itself outlasts a power failure only after `sync`.

        Raises:
            JobError: the run that it was for has ended.
        """
        self._refuse_links(name)
        temporary = self._temporary(name)
        try:
            with temporary.open("xb", buffering=1 << 20) as raw:
                yield DigestingFile(raw)
                with section("fsync"):
                    raw.flush()
                    os.fsync(raw.fileno())
            final = self.path / name
            final.parent.mkdir(parents=True, exist_ok=True)
            temporary.rename(final)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            if isinstance(error, FileNotFoundError) and not self._unfinished.is_dir():
                raise JobError(
                    f"{self}: the run that {name} was for has ended, or {self._unfinished} was removed; "
                    "if no other run is at work here, repeat it with --resume"
                ) from error
            raise

    def _refuse_links(self, name: str) -> None:
        """Nothing is written through a symbolic link that stands inside the folder: it may lead anywhere."""
        for part in (WORK, *map(str, Path(name).parents)):
            if part != "." and (self.path / part).is_symlink():
                raise DestinationError(f"{self.path / part}: is a symbolic link out of the data set; remove it")

    def write(self, name: str, data: bytes) -> None:
        with self.writer(name) as file:
            file.write(data)

    def adopt(self, source: Location, name: str) -> str | None:
        """Puts a file of another folder here under its name: a hard link where that can be, else a copy.

        Returns:
            sha256 of what was copied; None for a link.
        """
        self._refuse_links(name)
        temporary = self._temporary(name)
        try:
            if type(source) is not Location:
                return self._adopt_copy(source, name)
            os.link((source.path / name).resolve(), temporary)
            temporary.rename(self.path / name)
        except OSError:  # another file system, one without links, or somebody else's file
            return self._adopt_copy(source, name)
        finally:
            temporary.unlink(missing_ok=True)  # a rename to another link of the same file leaves both
        return None

    def _adopt_copy(self, source: Location, name: str) -> str:
        view = memoryview(source.map(name))
        with self.writer(name) as file:
            for first in range(0, len(view), _PIECE):
                file.write(view[first : first + _PIECE])
        return file.sha256

    def sync(self) -> None:
        """Makes the names of all files so far outlast a power failure: fsync of the folder and the folders in it."""
        for path in (*(p for p in self.path.iterdir() if p.is_dir() and p.name != WORK), self.path):
            _sync(path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps a second writer out for the duration of the block, which may write; what writers before left half done is removed.

        The kernel drops the lock when the process ends, however it ends: there are no stale locks.

        Raises:
            DestinationError: another process holds it.
        """
        path = self.path / WORK / LOCK
        self._refuse_links(LOCK)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise DestinationError(f"{self}: cannot write here ({error.strerror})") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The holder before us may have removed the file that we opened.
                held = path.exists() and os.fstat(descriptor).st_ino == path.stat().st_ino
            except BlockingIOError:
                held = False
            if not held:
                raise DestinationError(
                    f"{self}: another clozeline is writing here; wait for it, or choose another DEST"
                )
            for name in (self / WORK).names():
                if name.startswith(RUN):
                    self.remove(f"{WORK}/{name}")
            self._unfinished.mkdir()
            yield
        finally:
            os.close(descriptor)


def _remove_tree(folder: Path) -> None:
    """Also where a straggler is just taking a file away or adding one."""
    while folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find_location(path: str | os.PathLike[str]) -> Location:
    """The place that a path or a URL means."""
    if "://" not in os.fspath(path):
        return Location(path)
    from clozeline.store.remote import RemoteLocation

    return RemoteLocation(path)
