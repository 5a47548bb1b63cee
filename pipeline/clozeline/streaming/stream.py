"""`TokenStream`: a data set as an iterable of batches for PyTorch, exact under any number of ranks and workers.

Shapes: B rows per batch and rank, L positions per row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from clozeline.errors import ConfigError
from clozeline.mask_function import IGNORE
from clozeline.streaming.buffers import Buffers
from clozeline.streaming.cache import CacheOptions
from clozeline.streaming.cursor import MAX_WORKERS, Cursor
from clozeline.streaming.lengths import LengthOrder
from clozeline.streaming.misuse import check_caller
from clozeline.streaming.mixture import Mixture
from clozeline.streaming.order import RowOrder
from clozeline.streaming.plan import EpochPlan
from clozeline.streaming.ranks import check_rank, find_rank
from clozeline.streaming.rows import Identity, TokenRows
from clozeline.streaming.source import Source
from clozeline.streaming.state import check_state, make_state
from clozeline.streaming.tensors import widen

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from clozeline.store.manifest import Metadata
    from clozeline.streaming.order import Shuffle
    from clozeline.streaming.plan import Tail
    from clozeline.streaming.rows import Copy
    from clozeline.streaming.source import Transform
    from clozeline.streaming.tensors import Tensors

_AT_ONCE = 256  # batches planned together, or single rows read together


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamOptions:
    """What is seldom changed.

    Attributes:
        dtype: of integers: "int64", which embedding layers and losses of every version take, or "int32".
        identity: give `shard`, `row` and `global_row` too, int64 (B,): where each row stands; -1 for padding rows.
        full_attention_mask: give `attention_mask` also with batches that have no padding; without it such batches come
            without, and attention kernels for rows of one length can be used.
        columns: names of stored columns to give beside those that models take.
        block_rows, window_blocks: of shuffle="blocks"; see `RowOrder`.
        check: "sizes" holds each shard's bytes and rows against the manifest when a row of it is first needed; "digests"
            reads it whole for its sha256 too (1 to 2 GB/s), in every process that reads from it.
        cache: where the shards of a data set behind a URL are kept.
    """

    dtype: Literal["int64", "int32"] = "int64"
    identity: bool = False
    full_attention_mask: bool = True
    columns: tuple[str, ...] = ()
    block_rows: int = 4096
    window_blocks: int = 16
    check: Literal["sizes", "digests"] = "sizes"
    cache: CacheOptions = field(default_factory=CacheOptions)

    def __post_init__(self) -> None:
        if self.dtype not in ("int64", "int32"):
            raise ConfigError(f"dtype is {self.dtype!r}: use 'int64' or 'int32'")
        if self.check not in ("sizes", "digests"):
            raise ConfigError(f"check is {self.check!r}: use 'sizes' or 'digests'")


def with_identity(columns: dict[str, NDArray[Any]], at: Identity) -> dict[str, NDArray[Any]]:
    return {**columns, "shard": at.shard, "row": at.row, "global_row": at.number}


def _global_batch(batch_size: int | None, rank: int | None, world_size: int | None) -> int | None:
    return None if batch_size is None else batch_size * find_rank(rank, world_size)[1]


def _order(
    rows: TokenRows, shuffle: Shuffle, seed: int, options: StreamOptions, global_batch: int | None, tail: Tail
) -> RowOrder | LengthOrder:
    if shuffle == "lengths":
        if not global_batch or tail != "drop":
            raise ConfigError("shuffle is 'lengths': give a batch_size, and tail='drop'")
        lengths, counts = rows.files()
        return LengthOrder(lengths=lengths, counts=counts, global_batch=global_batch, seed=seed)
    sizes = {"block_rows": options.block_rows, "window_blocks": options.window_blocks}
    return RowOrder(count=rows.count, seed=seed, shuffle=shuffle, **sizes)


class Turn(NamedTuple):
    """One pass over (the rest of) an epoch."""

    plan: EpochPlan
    epoch: int
    generation: int
    worker: int


class TokenStream(IterableDataset):  # type: ignore[type-arg]
    """The rows of a packed or masked data set as batches: dicts of tensors, int64.

    Which rows make up the n-th global batch (that of all ranks together) depends on the data, the seed, the epoch and the
    number of rows in a global batch: not on how many ranks share it, nor on the number of workers, nor on a restart.

    Args:
        path: a packed or masked data set: a folder, or a URL that fsspec knows (s3://, gs://, hf://, https://).
        batch_size: rows per batch on each rank; None gives single rows, for those who collate themselves.
        transform: applied to each batch, such as `Masking(seed=1)` to packed rows.
        shuffle: "global", "blocks" (for storage where random reads cost) or None; see `RowOrder`. "lengths": global, and each
            global batch has rows of one length; see `LengthOrder`.
        seed: of the order; 0 to 2**64 - 1.
        rank, world_size: which part is ours; by default as `torch.distributed` says, else the environment (RANK,
            WORLD_SIZE), else 0 of 1.
        tail: what becomes of the rows after the last full global batch: "drop", "pad" (one more full batch, with padding rows)
            or "even" (one more batch as small as can be, at most one padding row on a rank). Padding rows repeat a row
            with labels -100 throughout and identity -1.
        epoch: stay in this epoch, for evaluation; by default epochs advance when a pass has ended.
        copy: of data masked several times: "all" copies as one data set, copy k in "epoch" k (mod K), or a number.

    Raises:
        DataError: no finished token data set, or a damaged one.
        ConfigError: options that are out of range or do not fit the data.

    With a `DataLoader` give `batch_size=None` to it; `TokenLoader` does better.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        batch_size: int | None = None,
        transform: Transform | None = None,
        shuffle: Shuffle = "global",
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        tail: Tail = "drop",
        epoch: int | None = None,
        copy: Copy = "all",
        options: StreamOptions | None = None,
    ) -> None:
        options = options or StreamOptions()
        rows = TokenRows(path, copy, options.cache, digests=options.check == "digests")
        at_once = {"blocks": 2 * options.window_blocks, None: 2}
        rows.check_cache(at_once.get(shuffle, rows.shards))
        order = _order(rows, shuffle, seed, options, _global_batch(batch_size, rank, world_size), tail)
        source = Source(rows, order, transform, columns=options.columns, full_mask=options.full_attention_mask)
        self._set_up(source, batch_size, rank, world_size, tail, epoch, options)

    @classmethod
    def mix(
        cls,
        streams: Sequence[TokenStream],
        weights: Sequence[float],
        *,
        batch_size: int | None = None,
        rows: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        tail: Tail = "drop",
        epoch: int | None = None,
        options: StreamOptions | None = None,
    ) -> TokenStream:
        """One stream of several, in fixed proportions.

        Args:
            streams: what to mix. Of each its data, transform, shuffle, seed and copy count; batch size, rank, tail and epoch are
                those of the mixture. A stream that is used up begins its own next epoch (with other masks).
            weights: shares of the rows, one for each stream.
            rows: in an epoch of the mixture; by default as many as the streams have together. The next epoch goes on in
                each stream where this one ends.
            options: `identity` adds `source`, int64 (B,): the index of the stream, beside the row's place in that.

        Raises:
            DataError: streams of different row lengths, vocabularies or columns.

        After p rows a stream of weight w has given w * p of them, to within one row per stream: in each global batch too.
        """
        mixed = cls.__new__(cls)
        sources = [s._source for s in streams]
        if not all(isinstance(s, Source) for s in sources):
            raise ConfigError("a mixture cannot be mixed again: mix all streams at once")
        if any(isinstance(s, Source) and isinstance(s.order, LengthOrder) for s in sources):
            raise ConfigError("streams with shuffle='lengths' cannot be mixed: their global batches would fall apart")
        source = Mixture([s for s in sources if isinstance(s, Source)], weights, rows)
        mixed._set_up(source, batch_size, rank, world_size, tail, epoch, options or StreamOptions())
        return mixed

    def _set_up(
        self,
        source: Source | Mixture,
        batch_size: int | None,
        rank: int | None,
        world_size: int | None,
        tail: Tail,
        epoch: int | None,
        options: StreamOptions,
    ) -> None:
        self._source = source
        self._options = options
        self._wide = np.dtype(options.dtype)
        self._batch_size = batch_size
        self._rank_given = rank is not None
        self.rank, self.world_size = find_rank(rank, world_size)
        self.tail: Tail = tail
        if epoch is not None and epoch < 0:
            raise ConfigError(f"epoch is {epoch}: epochs count from 0")
        self._pinned = epoch
        self._cursor = Cursor()
        self._cursor.seek(epoch or 0, 0)
        self._done: tuple[int, int] | None = None  # epoch and rows of the pass in this process
        self._worker_state: dict[str, Any] | None = None
        if getattr(getattr(source, "transform", None), "flat", False) and (batch_size is None or self._plan(0).padded):
            raise ConfigError(
                "unpadded batches have no rows to give out singly or to fill up: give batch_size, and tail='drop'"
            )
        if self._plan(0).padded and not self._source.has_labels and not options.identity:
            raise ConfigError(
                f"tail is {tail!r}, and rows without labels do not tell padding from data: use tail='drop', or "
                "StreamOptions(identity=True)"
            )

    # What an epoch holds

    def _plan(self, start: int) -> EpochPlan:
        return EpochPlan(
            rows=self._source.count,
            batch_rows=1 if self._batch_size is None else self._batch_size,
            rank=self.rank,
            world_size=self.world_size,
            tail=self.tail,
            start=start,
        )

    @property
    def batch_size(self) -> int | None:
        return self._batch_size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the integers given."""
        return self._wide

    @property
    def plan(self) -> EpochPlan:
        """How a whole epoch is cut: batches, rows dropped, padding rows."""
        return self._plan(0)

    @property
    def _whole_epoch(self) -> int:
        """Rows of a whole epoch as the state counts them."""
        return self.plan.batches * self.plan.global_batch

    @property
    def metadata(self) -> Metadata:
        """Of the data set: tokenizer facts, row length, lineage."""
        return self._source.metadata

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank, the same on every rank (rows where batch_size is None)."""
        return self._plan(0).batches

    # Where the stream stands

    @property
    def epoch(self) -> int:
        """The epoch of the pass that is going on, or else of the next one."""
        return self._done[0] if self._done else self._cursor.begin()[0]

    def set_epoch(self, epoch: int) -> None:
        """Moves to the start of an epoch; reaches workers that live on. The epoch where the stream stands already, perhaps
        in its middle after `load_state_dict`, is left as it is; so is a pinned epoch."""
        if epoch < 0:
            raise ConfigError(f"epoch is {epoch}: epochs count from 0")
        if self._pinned is None and epoch != self._cursor.begin()[0]:
            self._seek(epoch, 0)

    def _seek(self, epoch: int, rows: int) -> None:
        self._done = None
        self._cursor.seek(epoch, rows)

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands, as small flat JSON, the same on every rank: rows given out, not rows read ahead.

        Raises:
            ConfigError: worker processes give out the rows and only they know how many: use `TokenLoader`.
        """
        info = get_worker_info()
        if info is None and self._cursor.hidden:
            raise ConfigError(
                "the rows of this stream are given out by a DataLoader's worker processes, which do not tell how many: use "
                "TokenLoader(stream, num_workers=...) and its state_dict"
            )
        if info is None:
            under_way = self._done if self._done and self._done[1] < self._whole_epoch else None
            return self._state(*(under_way or self._cursor.begin()[:2]))
        if self._worker_state is not None:
            return self._worker_state
        done = self._done or self._at(self.begin(info.id, info.num_workers), info.id)
        return {**self._state(*done), "worker": info.id, "workers": info.num_workers}

    def _state(self, epoch: int, rows: int) -> dict[str, Any]:
        global_batch = None if self._batch_size is None else self._batch_size * self.world_size
        return make_state(epoch, rows, global_batch, self.tail, self._source.describe())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a state was taken. The number of ranks and workers may differ, the global batch may not.

        Raises:
            ConfigError: the state is of other data, another order, other masks or another global batch.
        """
        check_state(state, self._state(0, 0))
        info = get_worker_info()
        if info is None and "worker" not in state:
            self._seek(state["epoch"], state["rows"])
            return
        here = (info.id, info.num_workers) if info else None
        if here != (state.get("worker"), state.get("workers")):
            raise ConfigError(
                f"the state is of worker {state.get('worker')} of {state.get('workers')}, this is worker {here}: the number of "
                "workers may only change with TokenLoader"
            )
        self._worker_state = state

    # Rows

    def __iter__(self) -> Iterator[Tensors]:
        check_caller(self._batch_size is not None, self.world_size)
        info = get_worker_info()
        if info is not None and info.num_workers > MAX_WORKERS:
            raise ConfigError(f"{info.num_workers} workers: at most {MAX_WORKERS} can share a stream")
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        turn = self.begin(worker, workers)
        first = worker
        if self._worker_state is not None:
            turn = turn._replace(plan=self._plan(self._worker_state["rows"]), epoch=self._worker_state["epoch"])
            self._worker_state, first = None, 0
        if info is not None:
            self._cursor.hide()
        self._done = self._at(turn, first)
        return self._pass(turn, range(first, turn.plan.batches, workers))

    def _pass(self, turn: Turn, indices: range) -> Iterator[Tensors]:
        """One pass over a part of an epoch, counted as it is given out."""
        index = iter(indices)
        buffers = Buffers()
        for columns in self.columns(turn, indices, buffers, self._wide):
            tensors = widen(columns, self._wide, buffers)
            if self._batch_size is not None:
                self.count(turn, next(index), indices.step)
                yield tensors
                continue
            for i in range(len(columns["input_ids"])):
                self.count(turn, next(index), indices.step)
                yield {name: values[i] for name, values in tensors.items()}
        self.end(turn)

    # What `TokenLoader` is built of: it counts rows where they are given out, and reads them elsewhere.

    def begin(self, worker: int = 0, workers: int = 1) -> Turn:
        """The pass that begins now."""
        if get_worker_info() is None and not self._rank_given:
            check_rank(self.rank, self.world_size)
        epoch, start, generation = self._cursor.begin(workers)
        return Turn(self._plan(start), epoch, generation, worker)

    def join(self, epoch: int, start: int) -> Turn:
        """The pass that another process has begun at a row of an epoch."""
        return Turn(self._plan(start), epoch, generation=0, worker=0)

    def count(self, turn: Turn, index: int, step: int = 1) -> None:
        """Notes that the batch of this index is given out. With the last one the pass counts as ended: some trainers ask for
        as many batches as there are, and never for the end."""
        self._done = self._at(turn, index + step)
        if index + step >= turn.plan.batches:
            self._cursor.end(turn.worker, self._next_epoch(turn), turn.generation)

    def end(self, turn: Turn) -> None:
        """Notes that a pass has ended."""
        if get_worker_info() is None:
            self._done = None  # a worker's state stays that of the epoch which other workers may not have ended
        self._cursor.end(turn.worker, self._next_epoch(turn), turn.generation)

    def _next_epoch(self, turn: Turn) -> int:
        return turn.epoch + 1 if self._pinned is None else turn.epoch

    @staticmethod
    def _at(turn: Turn, index: int) -> tuple[int, int]:
        """Epoch and rows given out when the batch of this index comes next."""
        return turn.epoch, turn.plan.start + index * turn.plan.global_batch

    def columns(
        self, turn: Turn, indices: Iterable[int], buffers: Buffers, wide: np.dtype[Any] | None = None
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """The batches of ascending indices as arrays: (B, L) or (B,) each, in stored widths or wider."""
        plan, batched = turn.plan, self._batch_size is not None
        ahead = iter(indices)
        last: list[int] = []

        def positions() -> Iterator[NDArray[np.int64]]:
            while some := list(islice(ahead, _AT_ONCE)):
                if some[-1] == plan.whole:
                    last.append(some.pop())
                block = plan.positions(np.array(some, np.int64))
                yield from block if batched else [block.reshape(-1)] * bool(some)

        for batch in self._source.batches(turn.epoch, positions(), buffers, wide):
            yield self._named(batch.columns, batch.at)
        if last:
            at = plan.last_positions()
            padding = at < 0
            for batch in self._source.batches(turn.epoch, iter([np.where(padding, 0, at)]), buffers, wide):
                place = Identity(*(np.where(padding, -1, values) for values in batch.at))
                yield self._named(self._without_labels(batch.columns, padding), place)

    def _named(self, columns: dict[str, NDArray[Any]], at: Identity) -> dict[str, NDArray[Any]]:
        if self._options.identity:
            return with_identity(columns, at)
        columns.pop("source", None)
        return columns

    def _without_labels(self, columns: dict[str, NDArray[Any]], padding: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        if not padding.any():
            return columns
        if "labels" in columns:
            labels = columns["labels"].copy()
            labels[padding] = IGNORE
            return {**columns, "labels": labels}
        if self._options.identity:
            return columns
        raise ConfigError(
            f"tail is {self.tail!r}, and the transform gives no labels that would tell padding from data: use tail='drop', or "
            "StreamOptions(identity=True)"
        )
