"""Files and data sets behind URLs (s3://, gs://, memory://, ...), by fsspec; `s3://` needs the extra `s3`.

An object appears whole or not at all: it is written to a local temporary file first and uploaded under its final name, and the
manifest comes last. Object stores have no locks: that two runs do not write to one URL at the same time is up to the user.
Reading maps nothing: a shard that is opened is held in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from clozeline.errors import ConfigError
from clozeline.store.location import WORK, DigestingFile, Location

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK_BYTES = 4 * 2**20  # asked for at a time


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


def open_file(path: str) -> BinaryIO:
    """A local file or what a URL names, for reading."""
    if not is_url(path):
        return Path(path).open("rb")
    system, inside = file_system(path)
    return cast("BinaryIO", system.open(inside, "rb", block_size=_BLOCK_BYTES))


def file_facts(path: str) -> tuple[int, int]:
    """Bytes and time of the last change (ns, 0 where the store does not say) of a file or object."""
    if not is_url(path):
        facts = Path(path).stat()
        return facts.st_size, facts.st_mtime_ns
    system, inside = file_system(path)
    info = system.info(inside)
    changed = info.get("LastModified") or info.get("mtime") or info.get("created")
    return int(info["size"]), int(changed.timestamp() * 1e9) if hasattr(changed, "timestamp") else 0


def files_below(url: str) -> list[str] | None:
    """URLs of all objects below one; itself where it is an object; None where there is nothing."""
    system, inside = file_system(url)
    if system.isfile(inside):
        return [url]
    protocol = url.partition("://")[0]
    return [f"{protocol}://{name.removeprefix('/')}" for name in system.find(inside)] or None


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

    def exists(self, name: str = "") -> bool:
        return bool(self._system.exists(self._inside(name)))

    def is_folder(self) -> bool:
        return not self._system.isfile(self._root)

    def names(self) -> list[str]:
        try:
            listed = self._system.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        return sorted({name.rstrip("/").rpartition("/")[2] for name in listed if name.rstrip("/") != self._root})

    def size(self, name: str) -> int:
        return int(self._system.size(self._inside(name)))

    def read(self, name: str) -> bytes:
        return bytes(self._system.cat_file(self._inside(name)))

    def map(self, name: str) -> bytes:
        return self.read(name)

    def sha256(self, name: str) -> str:
        with self._system.open(self._inside(name), "rb", block_size=_BLOCK_BYTES) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

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
            self._system.makedirs(os.path.dirname(self._inside(name)), exist_ok=True)  # noqa: PTH120  # a URL's path
            self._system.put_file(raw.name, self._inside(name))

    def adopt(self, source: Location, name: str) -> str:
        return self._adopt_copy(source, name)

    def sync(self) -> None:
        """Nothing: an uploaded object is there to stay."""

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Nothing: object stores have no locks."""
        yield
