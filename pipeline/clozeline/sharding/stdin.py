"""Standard input as a SOURCE: kept in a temporary file, because it is measured first and read by several processes then."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from clozeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_STDIN = re.compile(r"-|stdin:([a-z0-9.]+)")


@contextlib.contextmanager
def spooled(sources: Sequence[str | os.PathLike[str]]) -> Iterator[list[str]]:
    """The sources with `-` (text) or `stdin:jsonl.gz` (and the like: what a file's name would end in) replaced by a file.

    The file's time of change is a function of its content, so that `--resume` knows the same input again.

    Raises:
        InputError: standard input is named twice, or is empty.
    """
    names = [str(source) for source in sources]
    found = [match for match in map(_STDIN.fullmatch, names) if match]
    if not found:
        yield names
        return
    if len(found) > 1:
        raise InputError("standard input (-) is named twice; it can be read once")
    with tempfile.TemporaryDirectory(prefix="clozeline-") as folder:
        path = Path(folder) / f"stdin.{found[0][1] or 'txt'}"
        digest = hashlib.sha256()
        with path.open("wb") as file:
            while block := sys.stdin.buffer.read(2**20):
                digest.update(block)
                file.write(block)
        if not path.stat().st_size:
            raise InputError("standard input is empty; is the command before it in the pipe right?")
        time = int.from_bytes(digest.digest()[:7], "big")
        os.utime(path, ns=(time, time))
        yield [str(path) if name == found[0][0] else name for name in names]
