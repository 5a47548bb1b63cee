"""`TokenStream`: a data set as an iterable of batches for PyTorch, exact under any number of ranks and workers.

Shapes: B rows per batch and rank, L positions per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from clozeline.errors import ConfigError
from clozeline.mask_function import IGNORE
from clozeline.streaming.buffers import Buffers
from clozeline.streaming.cursor import MAX_WORKERS, Cursor
from clozeline.streaming.order import RowOrder
from clozeline.streaming.plan import EpochPlan
from clozeline.streaming.ranks import check_rank, find_rank
from clozeline.streaming.rows import TokenRows
from clozeline.streaming.source import Source
from clozeline.streaming.state import check_state, make_state
from clozeline.streaming.tensors import identity_tensors, widen

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from clozeline.streaming.order import Shuffle
    from clozeline.streaming.plan import Tail
    from clozeline.streaming.rows import Copy
    from clozeline.streaming.source import Batch, Transform
    from clozeline.streaming.tensors import Tensors

_AT_ONCE = 256  # batches planned together, or single rows read together


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamOptions:
    """What is seldom changed.

    Attributes:
        dtype: of the integers given: "int64", which embedding layers and losses of every version take, or "int32".
        identity: give `shard`, `row` and `global_row` too, int64 (B,): where each row stands; -1 for padding rows.
        full_attention_mask: give `attention_mask` also with batches that have no padding; without it such batches come
            without, and attention kernels for rows of one length can be used.
        columns: names of stored columns to give beside those that models take.
        block_rows, window_blocks: of shuffle="blocks"; see `RowOrder`.
    """

    dtype: Literal["int64", "int32"] = "int64"
    identity: bool = False
    full_attention_mask: bool = True
    columns: tuple[str, ...] = ()
    block_rows: int = 4096
    window_blocks: int = 16

    def __post_init__(self) -> None:
        if self.dtype not in ("int64", "int32"):
            raise ConfigError(f"dtype is {self.dtype!r}: use 'int64' or 'int32'")


class TokenStream(IterableDataset):  # type: ignore[type-arg]
    """The rows of a packed or masked data set as batches: dicts of tensors, int64.

    Which rows make up the n-th global batch (that of all ranks together) depends on the data, the seed, the epoch and the
    number of rows in a global batch: not on how many ranks share it, nor on the number of workers, nor on a restart.

    Args:
        path: a packed or masked data set.
        batch_size: rows per batch on each rank; None gives single rows, for those who collate themselves.
        transform: applied to each batch, such as `Masking(seed=1)` to packed rows.
        shuffle: "global", "blocks" (for storage where random reads cost) or None; see `RowOrder`.
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
        rows = TokenRows(path, copy)
        order = RowOrder(
            count=rows.count,
            seed=seed,
            shuffle=shuffle,
            block_rows=options.block_rows,
            window_blocks=options.window_blocks,
        )
        self._source = Source(rows, order, transform, columns=options.columns, full_mask=options.full_attention_mask)
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
    def plan(self) -> EpochPlan:
        """How a whole epoch is cut: batches, rows dropped, padding rows."""
        return self._plan(0)

    @property
    def metadata(self) -> Any:
        """Of the data set: tokenizer facts, row length, lineage."""
        return self._source.rows.metadata

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
        epoch, rows = self._done or self._cursor.begin()[:2]
        state = self._state(epoch, rows)
        return state if info is None else {**state, "worker": info.id, "workers": info.num_workers}

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
        info = get_worker_info()
        if info is None and not self._rank_given:
            check_rank(self.rank, self.world_size)
        if info is not None and info.num_workers > MAX_WORKERS:
            raise ConfigError(f"{info.num_workers} workers: at most {MAX_WORKERS} can share a stream")
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        epoch, start, generation = self._cursor.begin(worker, workers)
        first = worker
        if self._worker_state is not None:
            epoch, start, first = self._worker_state["epoch"], self._worker_state["rows"], 0
            self._worker_state = None
        if info is not None:
            self._cursor.hide()
        return self._pass(epoch, start, generation, worker, range(first, self._plan(start).batches, workers))

    def _pass(self, epoch: int, start: int, generation: int, worker: int, indices: range) -> Iterator[Tensors]:
        """One pass over a part of an epoch, counted as it is given out."""
        plan = self._plan(start)
        self._done = (epoch, start)
        index = iter(indices)
        buffers = Buffers()
        for batch, padding in self._batches(plan, epoch, indices, buffers):
            tensors = self._tensors(batch, padding, buffers)
            if self._batch_size is not None:
                self._count(plan, epoch, next(index))
                yield tensors
                continue
            for i in range(len(padding)):
                self._count(plan, epoch, next(index))
                yield {name: values[i] for name, values in tensors.items()}
        self._done = None
        if self._pinned is None:
            self._cursor.end(worker, epoch, generation)

    def _count(self, plan: EpochPlan, epoch: int, index: int) -> None:
        self._done = (epoch, plan.start + (index + 1) * plan.global_batch)

    def _batches(
        self, plan: EpochPlan, epoch: int, indices: range, buffers: Buffers
    ) -> Iterator[tuple[Batch, NDArray[np.bool_]]]:
        """The batches of these indices, and which of their rows are padding, bool (B,)."""
        whole = range(indices.start, plan.whole, indices.step)
        with_last = plan.batches > plan.whole and plan.whole in indices

        def positions() -> Iterator[NDArray[np.int64]]:
            for i in range(0, len(whole), _AT_ONCE):
                block = plan.positions(np.array(whole[i : i + _AT_ONCE]))
                yield from block if self._batch_size is not None else [block.reshape(-1)]

        for batch in self._source.batches(epoch, positions(), buffers, self._wide):
            yield batch, np.zeros(len(batch.at.row), bool)
        if with_last:
            last = plan.last_positions()
            padding = last < 0
            for batch in self._source.batches(epoch, iter([np.where(padding, 0, last)]), buffers, self._wide):
                yield self._padded(batch, padding), padding

    def _padded(self, batch: Batch, padding: NDArray[np.bool_]) -> Batch:
        if not padding.any():
            return batch
        columns = dict(batch.columns)
        if "labels" in columns:
            columns["labels"] = np.where(
                padding[:, None], np.asarray(IGNORE, columns["labels"].dtype), columns["labels"]
            )
        elif not self._options.identity:
            raise ConfigError(
                f"tail is {self.tail!r}, and the transform gives no labels that would tell padding from data: use tail='drop', or "
                "StreamOptions(identity=True)"
            )
        return batch._replace(columns=columns)

    def _tensors(self, batch: Batch, padding: NDArray[np.bool_], buffers: Buffers) -> Tensors:
        tensors = widen(batch.columns, self._wide, buffers)
        if self._options.identity:
            tensors.update(identity_tensors(batch.at, padding))
        return tensors
