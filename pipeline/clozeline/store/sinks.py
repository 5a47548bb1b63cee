"""Where rows go: one stream of row blocks may be written as packed shards, as masked shards, or as both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from clozeline.store.ledger import Ledger
    from clozeline.store.output import ShardResult


class OpenShard(Protocol):
    """The file or files of one shard being written."""

    def write(self, columns: dict[str, NDArray[Any]], first_row: int) -> None:
        """Takes the next block of consecutive rows of the shard.

        Args:
            columns: (R, L) or (R,) by name; must not be changed.
            first_row: number of its first row within the shard.
        """
        ...

    def results(self, ledger: Ledger, read: Ledger | None) -> list[ShardResult]:
        """What was written, once closed; `ledger` is that of the packed rows, `read` that of their documents."""
        ...


class RowSink(Protocol):
    """A data set that rows can be written to; picklable."""

    def files(self, shard: int) -> tuple[tuple[str, str], ...]:
        """(stage, file name) of everything it writes for a shard."""
        ...

    def open(self, shard: int, row_length: int) -> AbstractContextManager[OpenShard]:
        """Starts a shard of rows of that length; its files appear when the context ends well."""
        ...
