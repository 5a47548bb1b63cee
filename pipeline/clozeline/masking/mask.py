"""Stage `mask`: packed rows in, masked rows with labels out."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clozeline.errors import ConfigError, DataError
from clozeline.mask_function import IGNORE, VERSION, MaskRule, mask_rows
from clozeline.masking.counts import token_counts
from clozeline.run.stage import RunOptions, StageResult, run_stage
from clozeline.store.dataset import Data
from clozeline.store.ledger import Account, Ledger
from clozeline.store.location import Location, find_location
from clozeline.store.masks import COUNTS, TokenCounts, check_rule, mask_vocabulary
from clozeline.store.output import Output, ShardResult
from clozeline.store.overlap import refuse_covered, refuse_nested
from clozeline.store.schema import label_dtype, masked_columns, sparse_columns
from clozeline.store.sections import section
from clozeline.store.shards import RESTORE, ShardWriter, TokenShard, shard_name
from clozeline.store.sparse import to_slots

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from clozeline.mask_function import Masked
    from clozeline.store.manifest import Metadata, ShardEntry

STAGE = "masking"
_SECONDS_PER_MB = 0.006  # of packed rows


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskOptions:
    """How rows are masked.

    Attributes:
        seed: 0 to 2**64 - 1.
        copies: K, how many times the whole data set is masked.
        rule: how positions are selected and what becomes of them.
        allow_lower_rate: `rule.max_predictions` may lower the rate by more than a tenth.
        labels: "dense" stores each copy's rows and labels whole; "sparse" the packed rows once, and of each copy the selected
            positions and what stands there.
    """

    seed: int = 0
    copies: int = 1
    rule: MaskRule = field(default_factory=MaskRule)
    allow_lower_rate: bool = False
    labels: Literal["dense", "sparse"] = "dense"

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed is {self.seed}: it lies between 0 and 2**64 - 1")
        if not 1 <= self.copies <= 1000:
            raise ConfigError(f"copies is {self.copies}: it lies between 1 and 1000")
        if self.labels not in ("dense", "sparse"):
            raise ConfigError(f"labels is {self.labels!r}: use 'dense' or 'sparse'")
        if len(self.rule.schedule) > self.copies and self.copies > 1:
            raise ConfigError(f"mask_prob has {len(self.rule.schedule)} values for {self.copies} copies")


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedRows:
    """The masked data set as a place for rows.

    K copies of S packed shards are K * S files, copy-major.

    Attributes:
        slots: with sparse labels M for each row length L; None with dense labels.
    """

    location: Location
    metadata: Metadata
    rule: MaskRule
    copies: int
    packed_shards: int
    counts: TokenCounts | None = None
    slots: dict[int, int] | None = None

    def files(self, shard: int) -> tuple[tuple[str, str], ...]:
        count = self.copies * self.packed_shards
        indices = (copy * self.packed_shards + shard for copy in range(self.copies))
        return tuple((STAGE, shard_name("masked", i, count)) for i in indices)

    @contextlib.contextmanager
    def open(self, shard: int, row_length: int) -> Iterator[_MaskedShard]:
        columns = self.columns(row_length)
        writers = [
            ShardWriter(self.location, name, columns, self.metadata, copy=copy, shard=shard, row_length=row_length)
            for copy, (_, name) in enumerate(self.files(shard))
        ]
        with contextlib.ExitStack() as stack:
            for writer in writers:
                stack.enter_context(writer)
            yield _MaskedShard(self, shard, writers, None if self.slots is None else self.slots[row_length])

    def columns(self, row_length: int) -> dict[str, pa.DataType]:
        """Of shards with rows of that length."""
        if self.slots is None:
            return masked_columns(self.metadata, row_length)
        return sparse_columns(self.metadata, self.slots[row_length])

    def masked(self, columns: dict[str, NDArray[Any]], copy: int, shard: int, first_row: int) -> Masked:
        """One masking of consecutive rows of a packed shard."""
        ids, facts, seed = columns["input_ids"], self.metadata.tokenizer, self.metadata.seed
        assert facts is not None
        assert seed is not None
        with section("mask"):
            return mask_rows(
                ids,
                self.rule,
                mask_vocabulary(facts, self.rule, self.counts),
                seed=seed,
                copy=copy,
                shards=np.full(len(ids), shard),
                rows=np.arange(first_row, first_row + len(ids)),
                label_dtype=label_dtype(facts.vocabulary_size),
                word_starts=columns.get("word_starts"),
            )


class _MaskedShard:
    def __init__(self, sink: MaskedRows, shard: int, writers: list[ShardWriter], slots: int | None) -> None:
        self._sink, self._shard, self._writers, self._slots = sink, shard, writers, slots
        self._counts: list[Counter[str]] = [Counter() for _ in writers]

    def write(self, columns: dict[str, NDArray[Any]], first_row: int) -> None:
        for copy, (writer, counts) in enumerate(zip(self._writers, self._counts, strict=True)):
            masked = self._sink.masked(columns, copy, self._shard, first_row)
            if self._slots is None:
                writer.write({**columns, "input_ids": masked.ids, "labels": masked.labels})
            else:
                slots = to_slots(masked.ids, masked.labels, self._slots)
                writer.write({**slots, "num_tokens": columns["num_tokens"]})
            counts.update(masked.actions)

    def results(self, ledger: Ledger, read: Ledger | None) -> list[ShardResult]:
        return [
            ShardResult(
                stage=STAGE,
                entry=writer.entry,
                ledger=Ledger(tokens=Account(taken=ledger.tokens.out, out=writer.entry.tokens), counts=counts),
            )
            for writer, counts in zip(self._writers, self._counts, strict=True)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskJob:
    """Masks one packed shard, in every copy."""

    location: Location
    entry: ShardEntry
    sink: MaskedRows

    @property
    def name(self) -> str:
        return self.shards[0][1]

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        return self.sink.files(self.entry.shard)

    def __call__(self) -> list[ShardResult]:
        source = TokenShard(self.location, self.entry)
        assert self.entry.row_length is not None
        if self.sink.slots is not None:
            copied = self.sink.location.adopt(self.location, self.entry.file)
            if copied not in (None, self.entry.sha256):
                raise DataError(f"{source.path}: its sha256 is not the manifest's; {RESTORE}")
        with self.sink.open(self.entry.shard, self.entry.row_length) as opened:
            row = 0
            for columns in source.batches():
                opened.write(columns, row)
                row += len(columns["input_ids"])
        return opened.results(Ledger(tokens=Account(out=self.entry.tokens)), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotsJob:
    """Finds how many positions at most are selected in a row of one packed shard, in any copy."""

    location: Location
    entry: ShardEntry
    sink: MaskedRows

    def __call__(self) -> int:
        most, row = 0, 0
        for columns in TokenShard(self.location, self.entry).batches():
            for copy in range(self.sink.copies):
                labels = self.sink.masked(columns, copy, self.entry.shard, row).labels
                most = max(most, int((labels != IGNORE).sum(axis=1).max(initial=0)))
            row += len(columns["input_ids"])
        return most


def needed_slots(data: Data, sink: MaskedRows, run: RunOptions) -> dict[int, int]:
    """For each row length of a packed data set the most positions selected in a row of any copy; at least 1.

    All masks are drawn for it once more: no bound on the lengths of words is needed, and no row can turn out not to fit.
    """
    slots: dict[int, int] = {}
    jobs = [SlotsJob(location=data.location, entry=entry, sink=sink) for entry in data.manifest.shards]
    seconds = data.manifest.bytes * sink.copies / 1e6 * _SECONDS_PER_MB
    with run.for_work(seconds).open_executor() as executor:
        for job, most in zip(jobs, executor.map(SlotsJob.__call__, jobs), strict=True):
            length = job.entry.row_length
            assert length is not None
            slots[length] = max(1, most, slots.get(length, 0))
    return slots


def masked_metadata(packed: Metadata, options: MaskOptions, counts: TokenCounts | None = None) -> Metadata:
    """What the masked rows made of packed rows are.

    Args:
        counts: of the packed rows, where replacements are drawn by frequency.

    Raises:
        ConfigError: the rule does not fit the rows or the vocabulary.
    """
    check_rule(options.rule, packed, allow_lower_rate=options.allow_lower_rate)
    if (options.rule.replacement == "frequency") != (counts is not None):
        raise ConfigError("replacement 'frequency' needs counts of all packed rows first: run `pack`, then `mask`")
    config = {**options.rule.to_json(), "copies": options.copies}
    if counts is not None:
        config["token_counts"] = counts.sha256
    if options.labels != "dense":
        config["labels"] = options.labels
    return packed.next(stage=STAGE, config=config, seed=options.seed, mask_function=VERSION)


def masked_output(
    location: Location,
    metadata: Metadata,
    sink: MaskedRows,
    files: dict[str, bytes],
    inputs: dict[str, Any],
    history: Callable[[], tuple[Ledger, ...]],
    raw: tuple[ShardEntry, ...] = (),
) -> Output:
    """The data set that `mask` makes.

    Args:
        raw: the packed shards, with sparse labels.
        history: gives the ledgers of the packed rows and the stages before.
    """
    by_shard = [sink.files(shard) for shard in range(sink.packed_shards)]
    assert metadata.row_length is not None
    return Output(
        location=location,
        metadata=metadata,
        columns=sink.columns(metadata.row_length),
        shards=tuple(names[copy][1] for copy in range(sink.copies) for names in by_shard),
        inputs=inputs,
        files=files,
        history=history,
        raw=raw,
    )


def mask(
    packed: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    options: MaskOptions | None = None,
    run: RunOptions | None = None,
) -> StageResult:
    """Static masks for a packed data set.

    Args:
        packed: what `pack` wrote.
        dest: a folder to create.

    Raises:
        DataError: `packed` is no finished packed data set, or damaged.
        DestinationError: `dest` is taken.
        InputError: `packed` and `dest` lie one inside the other.
    """
    options, run = options or MaskOptions(), run or RunOptions()
    data = Data(run.place(packed), "packing")
    location = find_location(run.place(dest))
    refuse_nested(str(location), [str(data.location)])
    refuse_covered(str(location), [str(data.location)])
    check_rule(options.rule, data.metadata, allow_lower_rate=options.allow_lower_rate)
    counts = token_counts(packed, run) if options.rule.replacement == "frequency" else None
    metadata = masked_metadata(data.metadata, options, counts)
    entries = data.manifest.shards
    sink = MaskedRows(
        location=location,
        metadata=metadata,
        rule=options.rule,
        copies=options.copies,
        packed_shards=len(entries),
        counts=counts,
    )
    if options.labels == "sparse":
        sink = replace(sink, slots=needed_slots(data, sink, run))
    files = {name: data.location.read(name) for name in data.manifest.files}
    if counts is not None:
        files[COUNTS] = counts.to_bytes()
    output = masked_output(
        location,
        metadata,
        sink,
        files,
        {"packed": data.manifest.sha256},
        lambda: (*data.manifest.history, data.manifest.ledger),
        entries if options.labels == "sparse" else (),
    )
    jobs = [MaskJob(location=data.location, entry=entry, sink=sink) for entry in entries]
    work = data.manifest.bytes * options.copies
    return run_stage("mask", [output], jobs, run, input_bytes=work, seconds_per_mb=_SECONDS_PER_MB)[0]
