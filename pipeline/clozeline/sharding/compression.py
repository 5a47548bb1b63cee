"""Reads compressed files to the end: every member, and nothing that is no member."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from clozeline.store.objects import is_url, open_file

if TYPE_CHECKING:
    from collections.abc import Callable

ENDINGS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
_XZ_MEMORY = 512 * 2**20  # bytes; the strongest preset of xz needs 65 MiB
_CHUNK = 2**18

# What decompressors raise for files that are damaged or cut short; EOFError is no OSError.
DAMAGE: tuple[type[Exception], ...] = (EOFError, OSError, lzma.LZMAError, zlib.error)


class _Members(io.RawIOBase):
    """The members of a gzip, bzip2 or xz file, one after the other.

    The standard library's readers pass over what follows the first member of a bzip2 or xz file where it is not a member:
    a joined file whose second part is damaged would be read as a shorter one.
    """

    def __init__(self, file: BinaryIO, new: Callable[[], Any]) -> None:
        self._file, self._new = file, new
        self._member: Any = None
        self._rest = b""  # compressed, not yet taken
        self._out = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._out:
            if not self._fill():
                return 0
        taken = min(len(buffer), len(self._out))
        buffer[:taken] = self._out[:taken]
        self._out = self._out[taken:]
        return taken

    def _fill(self) -> bool:
        if self._member is None:
            self._rest = self._rest.lstrip(b"\0")  # padding between members
            while not self._rest:
                block = self._file.read(_CHUNK)
                if not block:
                    return False
                self._rest = block.lstrip(b"\0")
            self._member = self._new()
        # zlib hands back what it has not taken; the others keep it and say that they need no input.
        if not self._rest and getattr(self._member, "needs_input", True):
            self._rest = self._file.read(_CHUNK)
            if not self._rest:
                raise EOFError("the end of the compressed data is missing")
        self._out = memoryview(self._member.decompress(self._rest, 4 * _CHUNK))
        self._rest = getattr(self._member, "unconsumed_tail", b"")
        if self._member.eof:
            self._rest = self._member.unused_data
            self._member = None
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


def open_compressed(path: str, compression: str) -> BinaryIO:
    """The decompressed bytes of a file; `compression` is "gzip", "zstd", "bz2" or "xz".

    Reading raises one of `DAMAGE` where the file is cut short, damaged, or followed by something else.
    """
    if compression == "zstd":
        import pyarrow as pa

        raw = pa.PythonFile(open_file(path), "r") if is_url(path) else pa.OSFile(path, "rb")
        stream = cast("io.RawIOBase", pa.CompressedInputStream(raw, "zstd"))
        return io.BufferedReader(stream, 4 * _CHUNK)
    new: Callable[[], Any] = {
        "gzip": lambda: zlib.decompressobj(wbits=31),
        "bz2": bz2.BZ2Decompressor,
        "xz": lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY),
    }[compression]
    return io.BufferedReader(_Members(open_file(path), new), 4 * _CHUNK)  # closed with it
