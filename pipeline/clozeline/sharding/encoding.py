"""Text that is not UTF-8: which encoding a file has, and the file read as UTF-8."""

from __future__ import annotations

import codecs
import io
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError, InputError

if TYPE_CHECKING:
    from typing import BinaryIO

AUTO = "auto"
_CHUNK = 2**18
_SAMPLE_BYTES = 2**16
_MARKS = {  # longest first: the mark of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def _mark_invalid(error: UnicodeError) -> tuple[str | bytes, int]:
    """Byte 0xff, which is no UTF-8, for what is invalid: the reader finds it there, document by document."""
    if isinstance(error, UnicodeDecodeError):
        return "\udcff", error.end
    if isinstance(error, UnicodeEncodeError):  # a lone surrogate: the one above, or one that UTF-7 decodes to
        return b"\xff", error.end
    raise error


codecs.register_error("clozeline.invalid", _mark_invalid)


def named(encoding: str) -> str | None:
    """The name that Python has for an encoding; None for UTF-8.

    Raises:
        ConfigError: there is no such encoding, or it is none of text.
    """
    try:
        found = codecs.lookup(encoding)
        "".encode(encoding)  # refuses what is no encoding of text, such as rot13
        codecs.getincrementaldecoder(encoding)
    except (LookupError, UnicodeError) as error:
        raise ConfigError(
            f"encoding is {encoding!r}: use utf-8, auto, or a name that Python knows, such as cp1252"
        ) from error
    return None if found.name in ("utf-8", "utf-8-sig") else found.name


def detect(stream: BinaryIO, path: str) -> str | None:
    """The encoding of a file; None for UTF-8, which a file is in when all of it is valid.

    UTF-16 and UTF-32 are known by their byte order mark. What is left is the best guess of `charset-normalizer` from the first
    64 KiB and the 64 KiB from the first byte on that is not UTF-8.

    Raises:
        InputError: no encoding fits.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    head = block = stream.read(_CHUNK)
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    while block:
        try:
            decoder.decode(block)
        except UnicodeDecodeError as error:
            sample = head[:_SAMPLE_BYTES] + block[error.start : error.start + _SAMPLE_BYTES]
            break
        block = stream.read(_CHUNK)
    else:
        return None if not decoder.getstate()[0] else _guess(head[:_SAMPLE_BYTES] + decoder.getstate()[0], path)
    return _guess(sample, path)


def _guess(sample: bytes, path: str) -> str:
    try:
        from charset_normalizer import from_bytes
    except ImportError as error:
        raise ConfigError("encoding auto needs charset-normalizer: pip install 'clozeline[text]'") from error
    best = from_bytes(sample).best()
    if best is None:
        raise InputError(
            f"{path}: in no encoding that could be found out; name it with --encoding, or leave the file out"
        )
    return codecs.lookup(best.encoding).name


class Transcoded(io.RawIOBase):
    """A file in another encoding, read as UTF-8; what is invalid there is byte 0xff here."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file, self._encoding = file, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("clozeline.invalid")
        self._out = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._out and not self._ended:
            block = self._file.read(_CHUNK)
            self._ended = not block
            try:
                text = self._decoder.decode(block, final=self._ended)
            except UnicodeError as error:  # of the file as a whole: no byte order mark where there must be one
                raise OSError(f"not {self._encoding}: {error}") from error
            self._out = memoryview(text.encode(errors="clozeline.invalid"))
        taken = min(len(buffer), len(self._out))
        buffer[:taken] = self._out[:taken]
        self._out = self._out[taken:]
        return taken

    def close(self) -> None:
        self._file.close()
        super().close()
