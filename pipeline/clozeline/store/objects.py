"""Files behind URLs (s3://, gs://, memory://, ...), by fsspec; `s3://` needs the extra `s3`."""

from __future__ import annotations

import errno
import functools
import glob
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ParamSpec, TypeVar, cast

from clozeline.errors import ClozelineError, ConfigError
from clozeline.store.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK_BYTES = 4 * 2**20  # asked for at a time
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


def reported(function: Callable[P, T]) -> Callable[P, T]:
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

    @reported
    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    @reported
    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self._file.close()
        super().close()


@reported
def open_file(path: str) -> BinaryIO:
    """A local file or what a URL names, for reading."""
    if not is_url(path):
        return Path(path).open("rb")
    system, inside = file_system(path)
    return io.BufferedReader(_Object(path, system.open(inside, "rb", block_size=BLOCK_BYTES)), _BUFFER_BYTES)


@reported
def file_facts(path: str) -> tuple[int, int]:
    """Bytes and time of the last change (ns, 0 where the store does not say) of a file or object."""
    if not is_url(path):
        facts = Path(path).stat()
        return facts.st_size, facts.st_mtime_ns
    system, inside = file_system(path)
    info = system.info(inside)
    changed = info.get("LastModified") or info.get("mtime") or info.get("created")
    return int(info["size"]), int(changed.timestamp() * 1e9) if hasattr(changed, "timestamp") else 0


@reported
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
