"""Stage `mask`: packed rows in, masked rows with labels out."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import ConfigError
from clozeline.mask_function import VERSION, MaskRule, mask_rows
from clozeline.masking.counts import token_counts
from clozeline.run.stage import RunOptions, StageResult, run_stage
from clozeline.store.dataset import Data
from clozeline.store.ledger import Account, Ledger
from clozeline.store.location import Location, find_location
from clozeline.store.masks import COUNTS, TokenCounts, check_rule, mask_vocabulary
from clozeline.store.output import Output, ShardResult
from clozeline.store.schema import label_dtype, masked_columns
from clozeline.store.sections import section
from clozeline.store.shards import ShardWriter, TokenShard, shard_name

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from clozeline.store.manifest import Metadata, ShardEntry, TokenizerFacts

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
    """

    seed: int = 0
    copies: int = 1
    rule: MaskRule = field(default_factory=MaskRule)
    allow_lower_rate: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed is {self.seed}: it lies between 0 and 2**64 - 1")
        if not 1 <= self.copies <= 1000:
            raise ConfigError(f"copies is {self.copies}: it lies between 1 and 1000")
        if len(self.rule.schedule) > self.copies and self.copies > 1:
            raise ConfigError(f"mask_prob has {len(self.rule.schedule)} values for {self.copies} copies")


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedRows:
    """The masked data set as a place for rows.

    K copies of S packed shards are K * S files, copy-major.
    """

    location: Location
    metadata: Metadata
    rule: MaskRule
    copies: int
    packed_shards: int
    counts: TokenCounts | None = None

    def files(self, shard: int) -> tuple[tuple[str, str], ...]:
        count = self.copies * self.packed_shards
        indices = (copy * self.packed_shards + shard for copy in range(self.copies))
        return tuple((STAGE, shard_name("masked", i, count)) for i in indices)

    @contextlib.contextmanager
    def open(self, shard: int, row_length: int) -> Iterator[_MaskedShard]:
        facts = self.metadata.tokenizer
        assert facts is not None
        columns = masked_columns(self.metadata, row_length)
        writers = [
            ShardWriter(self.location, name, columns, self.metadata, copy=copy, shard=shard)
            for copy, (_, name) in enumerate(self.files(shard))
        ]
        with contextlib.ExitStack() as stack:
            for writer in writers:
                stack.enter_context(writer)
            yield _MaskedShard(self, facts, shard, writers)


class _MaskedShard:
    def __init__(self, sink: MaskedRows, facts: TokenizerFacts, shard: int, writers: list[ShardWriter]) -> None:
        self._sink, self._facts, self._shard, self._writers = sink, facts, shard, writers
        self._counts: list[Counter[str]] = [Counter() for _ in writers]

    def write(self, columns: dict[str, NDArray[Any]], first_row: int) -> None:
        ids = columns["input_ids"]
        sink = self._sink
        seed = sink.metadata.seed
        assert seed is not None
        for copy, (writer, counts) in enumerate(zip(self._writers, self._counts, strict=True)):
            with section("mask"):
                masked = mask_rows(
                    ids,
                    sink.rule,
                    mask_vocabulary(self._facts, sink.rule, sink.counts),
                    seed=seed,
                    copy=copy,
                    shards=np.full(len(ids), self._shard),
                    rows=np.arange(first_row, first_row + len(ids)),
                    label_dtype=label_dtype(self._facts.vocabulary_size),
                    word_starts=columns.get("word_starts"),
                )
            writer.write({**columns, "input_ids": masked.ids, "labels": masked.labels})
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
        with self.sink.open(self.entry.shard, self.entry.row_length) as opened:
            row = 0
            for columns in source.batches():
                opened.write(columns, row)
                row += len(columns["input_ids"])
        return opened.results(Ledger(tokens=Account(out=self.entry.tokens)), None)


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
    return packed.next(stage=STAGE, config=config, seed=options.seed, mask_function=VERSION)


def masked_output(
    location: Location,
    metadata: Metadata,
    sink: MaskedRows,
    files: dict[str, bytes],
    inputs: dict[str, Any],
    history: Callable[[], tuple[Ledger, ...]],
) -> Output:
    """The data set that `mask` makes.

    Args:
        history: gives the ledgers of the packed rows and the stages before.
    """
    by_shard = [sink.files(shard) for shard in range(sink.packed_shards)]
    return Output(
        location=location,
        metadata=metadata,
        columns=masked_columns(metadata),
        shards=tuple(names[copy][1] for copy in range(sink.copies) for names in by_shard),
        inputs=inputs,
        files=files,
        history=history,
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
    """
    options, run = options or MaskOptions(), run or RunOptions()
    data = Data(run.place(packed), "packing")
    location = find_location(run.place(dest))
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
    )
    jobs = [MaskJob(location=data.location, entry=entry, sink=sink) for entry in entries]
    work = data.manifest.bytes * options.copies
    return run_stage("mask", [output], jobs, run, input_bytes=work, seconds_per_mb=_SECONDS_PER_MB)[0]
