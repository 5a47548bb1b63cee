"""Finds the input files, in an order that no file system chooses."""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from clozeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

FORMATS = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
_HUGGING_FACE = "hf:"
_NOMINAL_ROW_BYTES = 1024  # a row of a hub data set, where no file size is known


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFile:
    """One file of the corpus.

    Attributes:
        name: relative to its SOURCE, with forward slashes; the first part of the document ids.
        path: where it is now; never recorded.
        format: "text", "jsonl", "csv", "parquet", "arrow" or "hf".
        compression: None, "gzip", "zstd", "bz2" or "xz".
        bytes: after decompression; on disk for Parquet and Arrow; what shards are measured by.
        rows: for formats made of rows; else 0.
    """

    name: str
    path: str
    format: str
    compression: str | None
    bytes: int = 0
    rows: int = 0

    @property
    def seekable(self) -> bool:
        """Whether reading can begin anywhere, so that several workers share the file."""
        return self.compression is None and self.format in ("text", "jsonl")

    def open(self) -> BinaryIO:
        """The decompressed bytes.

        Every member or frame of a compressed file is read, and one cut short is an error, not a shorter file.
        """
        if self.compression == "gzip":
            return cast("BinaryIO", gzip.open(self.path, "rb"))
        if self.compression == "bz2":
            return cast("BinaryIO", bz2.open(self.path, "rb"))
        if self.compression == "xz":
            return cast("BinaryIO", lzma.open(self.path, "rb"))
        if self.compression == "zstd":
            import pyarrow as pa

            return cast("BinaryIO", pa.CompressedInputStream(pa.OSFile(self.path, "rb"), "zstd"))
        return Path(self.path).open("rb")


# What the decompressors raise for damaged or truncated files; EOFError is no OSError.
DAMAGE = (EOFError, OSError, lzma.LZMAError)


def find_files(sources: Sequence[str], warn: Callable[[str], None]) -> list[InputFile]:
    """The files of SOURCES in order: sources as given, the files of each by name.

    Args:
        sources: files, folders (searched to any depth; names beginning with a dot are passed over), globs, or `hf:NAME[@SPLIT]`.
        warn: told of files in folders that are left out because their format is not known.

    Raises:
        InputError: nothing there, not readable, not a regular file, of unknown format, or named twice.
    """
    found: list[list[InputFile]] = [_expand(source, warn) for source in sources]
    seen: dict[str, str] = {}
    for source, files in zip(sources, found, strict=True):
        for file in files:
            real = os.path.realpath(file.path) if file.format != "hf" else file.path
            if real in seen:
                raise InputError(f"{file.path}: comes in by both {seen[real]} and {source}; name it once")
            seen[real] = source
    names = [file.name for files in found for file in files]
    if len(set(names)) < len(names):  # the same relative name under two sources
        found = [[replace(f, name=f"{i}/{f.name}") for f in files] for i, files in enumerate(found)]
    return [file for files in found for file in files]


def _expand(source: str, warn: Callable[[str], None]) -> list[InputFile]:
    if source.startswith(_HUGGING_FACE):
        name = source.removeprefix(_HUGGING_FACE)
        return [InputFile(name=name, path=name, format="hf", compression=None)]
    path = Path(source)
    if path.is_dir():
        files, unknown = _classify(path, _walk(path))
        if unknown:
            shown = ", ".join(unknown[:3]) + (", ..." if len(unknown) > 3 else "")
            warn(f"{source}: {len(unknown)} file{'s' * (len(unknown) > 1)} of unknown format left out ({shown})")
        if not files:
            raise InputError(
                f"{source}: no input files in this folder; known endings are {_known()}, each also with {_compressed()}"
            )
        return files
    if not path.exists():
        matches = sorted(glob.glob(source, recursive=True), key=os.fsencode) if glob.has_magic(source) else []
        if not matches:
            raise InputError(f"{source}: no such file or folder; check the path")
        fixed = Path(*_before_magic(path.parts))
        paths = [Path(m) for m in matches if Path(m).is_file()]
        files, unknown = _classify(fixed, paths)
        if unknown:
            raise InputError(
                f"{fixed / unknown[0]}: unknown format; known endings are {_known()}, each also with {_compressed()}"
            )
        return files
    files, unknown = _classify(path.parent, [path])
    if unknown:
        raise InputError(f"{source}: unknown format; known endings are {_known()}, each also with {_compressed()}")
    return files


def _known() -> str:
    return " ".join(FORMATS)


def _compressed() -> str:
    return " ".join(COMPRESSIONS)


def _before_magic(parts: Iterable[str]) -> list[str]:
    fixed: list[str] = []
    for part in parts:
        if glob.has_magic(part):
            break
        fixed.append(part)
    return fixed


def _walk(folder: Path) -> list[Path]:
    paths = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".")]
        paths += [Path(parent) / name for name in names if not name.startswith(".")]
    return paths


def _classify(base: Path, paths: Iterable[Path]) -> tuple[list[InputFile], list[str]]:
    """The files among `paths` that can be read, by name; the names of the others."""
    files, unknown = [], []
    for path in paths:
        name = path.relative_to(base).as_posix()
        compression = COMPRESSIONS.get(path.suffix.lower())
        ending = Path(path.stem).suffix.lower() if compression else path.suffix.lower()
        kind = FORMATS.get(ending)
        if kind is None or (compression and kind in ("parquet", "arrow")):
            unknown.append(name)
            continue
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
        if not stat.S_ISREG(mode):
            raise InputError(f"{path}: not a regular file; write its content to one first")
        if not os.access(path, os.R_OK):
            raise InputError(f"{path}: no permission to read it")
        files.append(InputFile(name=name, path=str(path), format=kind, compression=compression))
    return sorted(files, key=lambda f: os.fsencode(f.name)), sorted(unknown)


def measure(files: Sequence[InputFile], threads: int) -> list[InputFile]:
    """The files with their bytes and rows.

    Compressed files are decompressed once for it (on threads: the decompressors release the interpreter lock), which
    also finds damage before any work is done.
    """
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(_measured, files))


def _measured(file: InputFile) -> InputFile:
    try:
        if file.format == "hf":
            from clozeline.sharding.tables import hub_dataset

            rows = hub_dataset(file.path).num_rows
            return replace(file, rows=rows, bytes=rows * _NOMINAL_ROW_BYTES)
        size = Path(file.path).stat().st_size
        if file.format in ("parquet", "arrow"):
            from clozeline.sharding.tables import count_rows

            return replace(file, rows=count_rows(file), bytes=size)
        if file.compression is None:
            return replace(file, bytes=size)
        total = 0
        if size:
            with file.open() as stream:
                while block := stream.read(io.DEFAULT_BUFFER_SIZE * 128):
                    total += len(block)
        return replace(file, bytes=total)
    except DAMAGE as error:
        raise InputError(f"{file.path}: damaged or cut short ({error}); fetch it again") from error
