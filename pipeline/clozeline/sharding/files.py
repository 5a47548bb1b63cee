"""Finds the input files, in an order that no file system chooses."""

from __future__ import annotations

import glob
import io
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from clozeline.errors import InputError
from clozeline.sharding.compression import DAMAGE, ENDINGS, open_compressed
from clozeline.sharding.encoding import AUTO, Transcoded, detect, named
from clozeline.sharding.options import WIKI_FILE
from clozeline.store.objects import file_facts, find_objects, is_url, open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from clozeline.sharding.options import ReadOptions

FORMATS = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".wet": "warc",
    ".warc": "warc",
}
_HUGGING_FACE = "hf:"
_BOMB_BYTES = 64 * 2**20  # a smaller file may be compressed as well as it likes
_NOMINAL_ROW_BYTES = 1024  # a row of a hub data set, where no file size is known


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFile:
    """One file of the corpus.

    Attributes:
        name: relative to its SOURCE, with forward slashes; the first part of the document ids.
        path: where it is now; never recorded.
        format: "text", "jsonl", "csv", "warc", "parquet", "arrow" or "hf".
        compression: None, "gzip", "zstd", "bz2" or "xz".
        encoding: None for UTF-8.
        bytes: after decompression and as UTF-8; on disk for Parquet and Arrow; what shards are measured by.
        rows: for formats made of rows; else 0.
        modified: time of the last change, ns; by it a file that changes while it is read is found out. Never recorded in the data.
    """

    name: str
    path: str
    format: str
    compression: str | None
    encoding: str | None = None
    bytes: int = 0
    rows: int = 0
    modified: int = 0

    @property
    def seekable(self) -> bool:
        """Whether reading can begin anywhere, so that several workers share the file."""
        return self.compression is None and self.encoding is None and self.format in ("text", "jsonl")

    def open(self) -> BinaryIO:
        """The decompressed bytes, as UTF-8.

        Every member or frame of a compressed file is read, and one cut short is an error, not a shorter file.
        """
        if self.encoding:
            return io.BufferedReader(Transcoded(replace(self, encoding=None).open(), self.encoding), 2**20)
        if self.compression:
            return open_compressed(self.path, self.compression)
        return open_file(self.path)


def find_files(sources: Sequence[str], warn: Callable[[str], None]) -> list[InputFile]:
    """The files of SOURCES in order: sources as given, the files of each by name.

    Args:
        sources: files, folders (searched to any depth; names beginning with a dot are passed over), globs, URLs of these, or
            `hf:NAME[@SPLIT]`.
        warn: told of files in folders that are left out because their format is not known.

    Raises:
        InputError: nothing there, not readable, not a regular file, of unknown format, or named twice.
    """
    found: list[list[InputFile]] = [_expand(source, warn) for source in sources]
    seen: dict[str, str] = {}
    for source, files in zip(sources, found, strict=True):
        for file in files:
            real = file.path if file.format == "hf" or is_url(file.path) else os.path.realpath(file.path)
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
    if is_url(source):
        is_folder, found = find_objects(source)
        if not found:
            raise InputError(f"{source}: no such file or folder; check the URL")
        return _known_only(source, *_classify(found), is_folder=is_folder, warn=warn)
    path = Path(source)
    if path.is_dir():
        files, unknown = _local(path, _walk(path))
        return _known_only(source, files, unknown, is_folder=True, warn=warn)
    if not os.path.lexists(path):
        matches = [Path(m) for m in glob.glob(source, recursive=True)] if glob.has_magic(source) else []
        if not matches:
            raise InputError(f"{source}: no such file or folder; check the path")
        base = Path(*_before_magic(path.parts))
        paths = [p for m in matches for p in (_walk(m) if m.is_dir() else [m])]
        files, unknown = _local(base, dict.fromkeys(paths))
    else:
        files, unknown = _local(path.parent, [path])
    return _known_only(source, files, unknown, is_folder=False, warn=warn)


def _known_only(
    source: str, files: list[InputFile], unknown: list[str], *, is_folder: bool, warn: Callable[[str], None]
) -> list[InputFile]:
    """The files, once the user has been told of those of unknown format: in a folder they are left out, by name they are an error.

    Args:
        unknown: names of those.
    """
    endings = f"known endings are {' '.join(FORMATS)}, each also with {' '.join(ENDINGS)}"
    if unknown and not is_folder:
        raise InputError(f"{source}: unknown format ({unknown[0]}); {endings}")
    if unknown:
        shown = ", ".join(unknown[:3]) + (", ..." if len(unknown) > 3 else "")
        warn(f"{source}: {len(unknown)} file{'s' * (len(unknown) > 1)} of unknown format left out ({shown})")
    if not files:
        raise InputError(f"{source}: no input files in this folder; {endings}")
    return files


def _format(name: str) -> tuple[str | None, str | None]:
    """Format and compression by a file's name; no format where it is not known."""
    path = Path(name)
    compression = ENDINGS.get(path.suffix.lower())
    ending = Path(path.stem).suffix.lower() if compression else path.suffix.lower()
    kind = "text" if WIKI_FILE.fullmatch(path.name) else FORMATS.get(ending)
    return (None if compression and kind in ("parquet", "arrow") else kind), compression


def _before_magic(parts: Iterable[str]) -> list[str]:
    fixed: list[str] = []
    for part in parts:
        if glob.has_magic(part):
            break
        fixed.append(part)
    return fixed


def _walk(folder: Path) -> list[Path]:
    """Everything below a folder but names beginning with a dot; links to folders are followed.

    Raises:
        InputError: a folder that cannot be read, or that is reached twice (a link to it, or a circle of links).
    """
    paths = []
    seen: dict[str, str] = {}

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error

    for parent, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        first = seen.setdefault(os.path.realpath(parent), parent)
        if first != parent:
            raise InputError(f"{parent}: is the same folder as {first}; remove the link")
        folders[:] = [f for f in folders if not f.startswith(".")]
        paths += [Path(parent) / name for name in names if not name.startswith(".")]
    return paths


def _local(base: Path, paths: Iterable[Path]) -> tuple[list[InputFile], list[str]]:
    """`_classify` for local files, which must be regular and readable."""
    files, unknown = _classify((path.relative_to(base).as_posix(), str(path)) for path in paths)
    for file in files:
        path = Path(file.path)
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
        if not stat.S_ISREG(mode):
            raise InputError(f"{path}: not a regular file; write its content to one first")
        if not os.access(path, os.R_OK):
            raise InputError(f"{path}: no permission to read it")
    return files, unknown


def _classify(found: Iterable[tuple[str, str]]) -> tuple[list[InputFile], list[str]]:
    """Of (name, path) what can be read, by name; the names of the others."""
    files, unknown = [], []
    for name, path in found:
        kind, compression = _format(name)
        if kind is None:
            unknown.append(_printable(name))
        else:
            files.append(InputFile(name=_printable(name), path=path, format=kind, compression=compression))
    return sorted(files, key=lambda f: f.name.encode()), sorted(unknown)


def _printable(name: str) -> str:
    """File names are bytes; those that are not UTF-8 get \\xNN for what does not fit."""
    return os.fsencode(name).decode(errors="backslashreplace")


def measure(files: Sequence[InputFile], threads: int, options: ReadOptions) -> list[InputFile]:
    """The files with their encodings, bytes, rows and times.

    Compressed files are decompressed once for it (on threads: the decompressors release the interpreter lock), which
    also finds damage before any work is done. So are files read whose encoding is to be found out.

    Raises:
        InputError: a file that is damaged, cut short, in no encoding that is known, or that grows beyond `max_compression_ratio`.
    """
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda file: _measured(file, options), files))


def _measured(file: InputFile, options: ReadOptions) -> InputFile:
    try:
        if file.format == "hf":
            from clozeline.sharding.tables import hub_dataset

            rows = hub_dataset(file.path).num_rows
            return replace(file, rows=rows, bytes=rows * _NOMINAL_ROW_BYTES)
        size, modified = file_facts(file.path)
        file = replace(file, bytes=size, modified=modified)
        if file.format in ("parquet", "arrow"):
            from clozeline.sharding.tables import count_rows

            return replace(file, rows=count_rows(file))
        if options.encoding == AUTO and size:
            with file.open() as stream:
                file = replace(file, encoding=detect(stream, file.path))
        elif options.encoding != AUTO:
            file = replace(file, encoding=named(options.encoding))
        if file.compression is None and file.encoding is None:
            return file
        total, max_ratio = 0, options.max_compression_ratio
        most = max(_BOMB_BYTES, max_ratio * size)
        if size:
            with file.open() as stream:
                while block := stream.read(2**20):
                    total += len(block)
                    if total > most:
                        raise InputError(
                            f"{file.path}: grows to more than {max_ratio} times its {size:,} bytes; "
                            "where that is meant, raise --max-compression-ratio"
                        )
        return replace(file, bytes=total)
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno:
            raise  # a fault of the machine, not of the file
        raise InputError(f"{file.path}: damaged or cut short ({error}); fetch it again") from error


def refuse_changed(files: Iterable[InputFile]) -> None:
    """Raises InputError when a file is not what it was when it was measured: some of its documents may be lost or half read."""
    for file in files:
        if file.format == "hf":
            continue
        try:
            modified = file_facts(file.path)[1]
        except OSError:
            modified = -1
        if modified != file.modified:
            raise InputError(
                f"{file.path}: changed while it was read; run again with --force when nothing writes to it"
            )
