"""Data sets behind URLs (s3://, gs://, memory://, ...).

An object appears whole or not at all: it is written to a local temporary file first and uploaded under its final name, and the
manifest comes last. What is read at random is copied to a local temporary file without a name and mapped from there, so that
memory does not grow with a shard; TMPDIR says where.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import platform
import secrets
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from clozeline.errors import DestinationError
from clozeline.store.json_values import parse_json
from clozeline.store.location import LOCK, WORK, DigestingFile, Location
from clozeline.store.objects import BLOCK_BYTES, file_system, reported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_held: set[object] = set()  # nonces of the locks of this process


class RemoteLocation(Location):
    """A folder behind a URL."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._url = os.fspath(path).rstrip("/")
        self._system, self._root = file_system(self._url)

    def __str__(self) -> str:
        return self._url

    def __truediv__(self, name: str) -> Location:
        return RemoteLocation(f"{self._url}/{name}")

    def __reduce__(self) -> tuple[type[RemoteLocation], tuple[str]]:
        return RemoteLocation, (self._url,)

    def _inside(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    @reported
    def exists(self, name: str = "") -> bool:
        return bool(self._system.exists(self._inside(name)))

    @reported
    def is_folder(self) -> bool:
        return not self._system.isfile(self._root)

    @reported
    def names(self) -> list[str]:
        try:
            listed = self._system.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        return sorted({name.rstrip("/").rpartition("/")[2] for name in listed if name.rstrip("/") != self._root})

    @reported
    def size(self, name: str) -> int:
        return int(self._system.size(self._inside(name)))

    @reported
    def read(self, name: str) -> bytes:
        return bytes(self._system.cat_file(self._inside(name)))

    @reported
    def map(self, name: str) -> mmap.mmap | bytes:
        with tempfile.NamedTemporaryFile(prefix="clozeline-") as copy:  # its space is freed with the map
            self._system.get_file(self._inside(name), copy.name)
            length = Path(copy.name).stat().st_size
            with Path(copy.name).open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if length else b""

    @reported
    def sha256(self, name: str) -> str:
        with self._system.open(self._inside(name), "rb", block_size=BLOCK_BYTES) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @reported
    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._system.rm(self._inside(name), recursive=True)

    def remove_work(self) -> None:
        self.remove(WORK)

    def remove_folder(self) -> None:
        """Nothing: without objects there is no folder."""

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[DigestingFile]:
        with tempfile.NamedTemporaryFile(prefix="clozeline-") as raw:
            yield DigestingFile(cast("BinaryIO", raw))
            raw.flush()
            self._upload(name, raw.name)

    @reported
    def _upload(self, name: str, file: str) -> None:
        self._in_folder(name, self._system.put_file, file, self._inside(name))

    def _in_folder(self, name: str, put: Callable[..., object], *arguments: Any, **options: Any) -> None:
        """Calls what writes an object, and again with the folder made where the store has folders and misses it.

        No bucket is made: one that is not there is misspelt.
        """
        try:
            put(*arguments, **options)
        except FileNotFoundError:
            root = self._root.split("/")
            if not self._system.exists("/".join(root[:2]) if not root[0] else root[0]):
                raise
            self._system.makedirs(self._inside(name).rpartition("/")[0], exist_ok=True)
            put(*arguments, **options)

    def adopt(self, source: Location, name: str) -> str:
        return self._adopt_copy(source, name)

    def sync(self) -> None:
        """Nothing: an uploaded object is there to stay."""

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps a second writer out for the duration of the block, by an object that only one of two writers can create.

        Stores with conditional writes (S3) decide which; with others two starts within milliseconds may both get through. A run
        that was killed leaves its lock behind: where it ran on this host, the next run sees that it is gone; else nobody can.

        Raises:
            DestinationError: another run holds it.
        """
        name = f"{WORK}/{LOCK}"
        mine = {
            "host": platform.node(),
            "pid": os.getpid(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            "nonce": secrets.token_hex(8),
        }
        if not self._create(name, mine):
            holder = self._holder(name)
            if holder.get("host") != mine["host"] or _lives(holder):
                raise DestinationError(
                    f"{self}: another clozeline is writing here, process {holder.get('pid')} on {holder.get('host')} since "
                    f"{holder.get('since')}; wait for it, choose another DEST, or if it was killed remove {self}/{name}"
                )
            self.remove(name)
            if not self._create(name, mine):
                raise DestinationError(f"{self}: another clozeline has just begun to write here; wait for it")
        _held.add(mine["nonce"])
        try:
            yield
        finally:
            _held.discard(mine["nonce"])
            if self._holder(name) == mine:
                self.remove(name)

    @reported
    def _create(self, name: str, content: dict[str, Any]) -> bool:
        """Writes an object unless there is another of that name."""
        body = json.dumps(content).encode()
        try:
            self._in_folder(name, self._system.pipe_file, self._inside(name), body, mode="create")
        except OSError as error:
            # Refused, in one of several ways; or granted, and refused to the repetition of a request whose answer was lost.
            said = self._holder(name)
            if not said and not isinstance(error, FileExistsError):
                raise
            return said == content
        return True

    def _holder(self, name: str) -> dict[str, Any]:
        """What the lock says; nothing where there is none, or none that can be read."""
        try:
            said = parse_json(self.read(name))
        except (FileNotFoundError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}


def _lives(holder: dict[str, Any]) -> bool:
    """Whether a process of this host that holds a lock still runs."""
    pid = holder.get("pid")
    if not isinstance(pid, int) or pid == os.getpid():  # in a container that was started again, numbers are the same
        return holder.get("nonce") in _held
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
