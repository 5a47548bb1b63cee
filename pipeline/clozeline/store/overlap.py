"""What a run reads must not lie where it writes: `--force` clears the whole of DEST."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from clozeline.errors import InputError
from clozeline.store.remote import is_url

if TYPE_CHECKING:
    from collections.abc import Iterable


def refuse_nested(dest: str | os.PathLike[str], sources: Iterable[str | os.PathLike[str]]) -> None:
    """Refuses a DEST that is a SOURCE or lies inside one, where the next run would read it.

    Raises:
        InputError: it does.
    """
    for source in sources:
        if _lies_inside(dest, source):
            raise InputError(
                f"{dest}: lies inside SOURCE {source}, the next run would read it; choose a DEST elsewhere"
            )


def refuse_covered(dest: str | os.PathLike[str], read: Iterable[str | os.PathLike[str]]) -> None:
    """Refuses a DEST that holds something that the run reads, or is it.

    Args:
        read: files and folders; what does not exist (a name on the hub) lies nowhere.

    Raises:
        InputError: it does.
    """
    for path in read:
        if _lies_inside(path, dest):
            raise InputError(f"{path}: is read, and lies inside DEST {dest}, which --force clears; choose another DEST")


def _lies_inside(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder or something below it, links followed."""
    if is_url(path) != is_url(folder):
        return False
    if is_url(path):
        return f"{os.fspath(path).rstrip('/')}/".startswith(f"{os.fspath(folder).rstrip('/')}/")
    inner, outer = Path(path).resolve(), Path(folder).resolve()
    return outer.is_dir() and inner.is_relative_to(outer)
