"""Files and data sets behind URLs (s3://, gs://, memory://, ...), by fsspec; `s3://` needs the extra `s3`.

An object appears whole or not at all: it is written to a local temporary file first and uploaded under its final name, and the
manifest comes last. What is read at random is copied to a local temporary file without a name and mapped from there, so that
memory does not grow with a shard; TMPDIR says where.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import glob
import hashlib
import io
import json
import mmap
import os
import platform
import secrets
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ParamSpec, TypeVar, cast

from clozeline.errors import ClozelineError, ConfigError, DestinationError
from clozeline.store.json_values import parse_json
from clozeline.store.location import LOCK, WORK, DigestingFile, Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BLOCK_BYTES = 4 * 2**20  # asked for at a time
_BUFFER_BYTES = 2**20
P = ParamSpec("P")
T = TypeVar("T")


def is_url(path: str | os.PathLike[str]) -> bool:
    return "://" in os.fspath(path)


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL and the path within it.

    Raises:
        ConfigError: of a kind that is not known or not installed.
    """
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{url}: {error}; for s3:// install 'clozeline[s3]'") from error
    return system, path


def _reported(function: Callable[P, T]) -> Callable[P, T]:
    """Has what a store's library raises (no credentials, no such host, access denied) come as OSError with a number and the place.

    The place is the first argument, and the name within it the second where that is a string.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except ClozelineError:
            raise
        except Exception as error:
            known = isinstance(error, OSError)
            if (known and cast("OSError", error).errno) or (not known and type(error).__module__ == "builtins"):
                raise
            kinds = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES, FileExistsError: errno.EEXIST}
            number = next((n for kind, n in kinds.items() if isinstance(error, kind)), errno.EIO)
            place = "/".join(str(part) for part in args[:2] if part and isinstance(part, str | Location | _Object))
            raise OSError(number, str(error) or type(error).__name__, place) from error

    return call


class _Object(io.RawIOBase):
    """An object being read."""

    def __init__(self, url: str, file: Any) -> None:
        self._url, self._file = url, file

    def __str__(self) -> str:
        return self._url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    @_reported
    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    @_reported
    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self._file.close()
        super().close()


@_reported
def open_file(path: str) -> BinaryIO:
    """A local file or what a URL names, for reading."""
    if not is_url(path):
        return Path(path).open("rb")
    system, inside = file_system(path)
    return io.BufferedReader(_Object(path, system.open(inside, "rb", block_size=_BLOCK_BYTES)), _BUFFER_BYTES)


@_reported
def file_facts(path: str) -> tuple[int, int]:
    """Bytes and time of the last change (ns, 0 where the store does not say) of a file or object."""
    if not is_url(path):
        facts = Path(path).stat()
        return facts.st_size, facts.st_mtime_ns
    system, inside = file_system(path)
    info = system.info(inside)
    changed = info.get("LastModified") or info.get("mtime") or info.get("created")
    return int(info["size"]), int(changed.timestamp() * 1e9) if hasattr(changed, "timestamp") else 0


@_reported
def find_objects(url: str) -> tuple[bool, list[tuple[str, str]]]:
    """What a URL stands for: an object, all objects below a folder, or what matches a glob and lies below what matches.

    Returns:
        Whether it is a folder; (name, URL) of each object, names relative to the folder, or to what of a glob comes before its
        first wildcard.
    """
    system, inside = file_system(url)
    inside = inside.rstrip("/")
    if system.isfile(inside):
        return False, [(inside.rpartition("/")[2], url)]
    pattern = inside.replace("?", "") if url.startswith("http") else inside  # there it begins the query
    if not glob.has_magic(pattern):
        base, found = inside, system.find(inside)
    else:
        parts = inside.split("/")
        base = "/".join(parts[: next(i for i, part in enumerate(parts) if glob.has_magic(part))])
        matches = system.glob(inside, detail=True).items()
        found = [f for path, info in matches for f in (system.find(path) if info["type"] == "directory" else [path])]
    names = {path: path.removeprefix(base).strip("/") for path in found if not path.endswith("/")}
    return not glob.has_magic(pattern), [
        (name, system.unstrip_protocol(path))
        for path, name in names.items()
        if not any(part.startswith(".") for part in name.split("/"))
    ]


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

    @_reported
    def exists(self, name: str = "") -> bool:
        return bool(self._system.exists(self._inside(name)))

    @_reported
    def is_folder(self) -> bool:
        return not self._system.isfile(self._root)

    @_reported
    def names(self) -> list[str]:
        try:
            listed = self._system.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        return sorted({name.rstrip("/").rpartition("/")[2] for name in listed if name.rstrip("/") != self._root})

    @_reported
    def size(self, name: str) -> int:
        return int(self._system.size(self._inside(name)))

    @_reported
    def read(self, name: str) -> bytes:
        return bytes(self._system.cat_file(self._inside(name)))

    @_reported
    def map(self, name: str) -> mmap.mmap | bytes:
        with tempfile.NamedTemporaryFile(prefix="clozeline-") as copy:  # its space is freed with the map
            self._system.get_file(self._inside(name), copy.name)
            length = Path(copy.name).stat().st_size
            with Path(copy.name).open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if length else b""

    @_reported
    def sha256(self, name: str) -> str:
        with self._system.open(self._inside(name), "rb", block_size=_BLOCK_BYTES) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @_reported
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

    @_reported
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
            if holder.get("host") != mine["host"] or _lives(holder.get("pid")):
                raise DestinationError(
                    f"{self}: another clozeline is writing here, process {holder.get('pid')} on {holder.get('host')} since "
                    f"{holder.get('since')}; wait for it, choose another DEST, or if it was killed remove {self}/{name}"
                )
            self.remove(name)
            if not self._create(name, mine):
                raise DestinationError(f"{self}: another clozeline has just begun to write here; wait for it")
        try:
            yield
        finally:
            if self._holder(name).get("nonce") == mine["nonce"]:
                self.remove(name)

    @_reported
    def _create(self, name: str, content: dict[str, Any]) -> bool:
        """Writes an object unless there is one of that name."""
        body = json.dumps(content).encode()
        try:
            self._in_folder(name, self._system.pipe_file, self._inside(name), body, mode="create")
        except FileExistsError:
            return False
        return True

    def _holder(self, name: str) -> dict[str, Any]:
        """What the lock says; nothing where there is none, or none that can be read."""
        try:
            said = parse_json(self.read(name))
        except (FileNotFoundError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}


def _lives(pid: object) -> bool:
    """Whether a process of this host runs."""
    if not isinstance(pid, int) or pid == os.getpid():
        return isinstance(pid, int)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
