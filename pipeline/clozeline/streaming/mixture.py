"""Several sources as one, in fixed proportions: `TokenStream.mix`.

The source at each position and its place within the source are computed, not drawn: after p rows, a source of weight w has given
w * p of them to within one (for each further source to within one more), in every global batch and on every rank. A source that
is used up begins its next epoch.

Shapes: B rows per batch.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import ConfigError, DataError
from clozeline.streaming.merge import merge
from clozeline.streaming.rows import Identity
from clozeline.streaming.source import LOCATE_ROWS, Batch, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from clozeline.store.manifest import Metadata
    from clozeline.streaming.buffers import Buffers

_BITS = 24  # of a weight
_MAX_POSITION = 2 ** (63 - _BITS)


class Mixture:
    """Sources and their weights.

    Args:
        sources: of one row length and one vocabulary, with the same columns.
        weights: one for each source, above 0; shares of the rows.
        count: rows in an epoch of the mixture; None for as many as the sources have together.

    Raises:
        ConfigError: weights that cannot be used.
        DataError: sources that do not fit each other.
    """

    def __init__(self, sources: Sequence[Source], weights: Sequence[float], count: int | None = None) -> None:
        if not sources or len(sources) != len(weights) or not all(0 < w < float("inf") for w in weights):
            raise ConfigError(f"weights are {list(weights)} for {len(sources)} streams: give each one above 0")
        for i, source in enumerate(sources):
            mine, first = source.metadata, sources[0].metadata
            assert mine.tokenizer is not None
            assert first.tokenizer is not None
            for what, one, other in (
                ("row length", first.row_length, mine.row_length),
                ("vocabulary", first.tokenizer.vocabulary_sha256, mine.tokenizer.vocabulary_sha256),
            ):
                if one != other:
                    raise DataError(f"cannot mix: {what} is {one} in stream 0, {other} in stream {i}")
            if not source.count:
                raise DataError(f"cannot mix: stream {i} ({source.rows.data.location}) has no rows")
        self.sources = list(sources)
        self.weights = [w / sum(weights) for w in weights]
        self.count = sum(s.count for s in sources) if count is None else count
        if self.count < 1:
            raise ConfigError(f"rows is {self.count}: an epoch has at least 1")
        # Of what the sources before leave, source i takes this share, in units of 2**-24.
        left = np.cumsum(self.weights[::-1])[::-1]
        self._shares = [max(1, round(w / rest * 2**_BITS)) for w, rest in zip(self.weights[:-1], left, strict=False)]

    @property
    def metadata(self) -> Metadata:
        return self.sources[0].metadata

    @property
    def has_labels(self) -> bool:
        return all(s.has_labels for s in self.sources)

    def describe(self) -> dict[str, Any]:
        """What its batches depend on, as flat JSON."""
        parts = [
            {**{f"{key} of stream {i}": value for key, value in source.describe().items()}, f"weight of stream {i}": w}
            for i, (source, w) in enumerate(zip(self.sources, self.weights, strict=True))
        ]
        return {key: value for part in parts for key, value in part.items()} | {"rows of an epoch": self.count}

    def draws(self, epoch: int, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(source, how many rows of it come before), int64 (P,) each, for positions of an epoch."""
        if (epoch + 1) * self.count >= _MAX_POSITION:
            raise ConfigError(f"epoch {epoch} of {self.count:,} rows is beyond what a mixture can count")
        at = positions + epoch * self.count
        source = np.full(len(at), len(self.sources) - 1)
        open_ = np.arange(len(at))
        for i, share in enumerate(self._shares):
            mine = at[open_]
            before = mine * share >> _BITS
            taken = (mine + 1) * share >> _BITS > before
            source[open_[taken]] = i
            at[open_[taken]] = before[taken]
            open_ = open_[~taken]
            at[open_] -= before[~taken]
        return source, at

    def batches(
        self,
        epoch: int,
        positions: Iterator[NDArray[np.int64]],
        buffers: Buffers,
        wide: np.dtype[Any] | None = None,
    ) -> Iterator[Batch]:
        """See `Source.batches`; there is one more column, `source`, int64 (B,)."""
        ahead = 1
        while block := list(islice(positions, ahead)):
            source, draw = self.draws(epoch, np.concatenate(block))
            counts = np.array([s.count for s in self.sources])
            epochs, places = np.divmod(draw, counts[source])
            located = np.empty((4, len(draw)), np.int64)
            pieces = np.unique(np.stack([source, epochs]), axis=1).T.tolist()
            for i, e in pieces:
                here = (source == i) & (epochs == e)
                located[:, here] = self.sources[i].locate(e, places[here])
            first = 0
            for size in map(len, block):
                part = slice(first, first + size)
                at = Identity(*located[:, part])
                yield Batch(at, self._read(source[part], epochs[part], at, buffers, wide))
                first += size
            ahead = min(2 * ahead, max(1, LOCATE_ROWS // max(1, len(block[0]))))

    def _read(
        self,
        source: NDArray[np.int64],
        epochs: NDArray[np.int64],
        at: Identity,
        buffers: Buffers,
        wide: np.dtype[Any] | None,
    ) -> dict[str, NDArray[Any]]:
        """Each source reads and transforms its own rows; then they are put together."""
        parts = []
        for i, e in np.unique(np.stack([source, epochs]), axis=1).T.tolist():
            here = np.flatnonzero((source == i) & (epochs == e))
            parts.append((here, self.sources[i].read(Identity(*(v[here] for v in at)), e, buffers)))
        assert self.metadata.tokenizer is not None
        return {**merge(parts, len(source), self.metadata.tokenizer.pad_id, buffers, wide), "source": source}
