"""Stage `pack`: text shards in, token rows out."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import ConfigError, InputError
from clozeline.packing.concat import ConcatPacker
from clozeline.packing.engines import ENGINES, Sampler, seconds_per_mb, worker_engine
from clozeline.packing.tokenizer import LoadedTokenizer, load_tokenizer
from clozeline.run.stage import RunOptions, StageResult, run_stage
from clozeline.store.dataset import Data
from clozeline.store.documents import TextShard
from clozeline.store.ledger import Ledger
from clozeline.store.location import Location
from clozeline.store.output import Output, ShardResult
from clozeline.store.schema import MAX_ROW_LENGTH, packed_columns
from clozeline.store.shards import ShardWriter, shard_name

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from clozeline.store.documents import Documents, DocumentSource
    from clozeline.store.manifest import Manifest, Metadata
    from clozeline.store.sinks import RowSink

STAGE = "packing"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackOptions:
    """How text becomes rows.

    Attributes:
        max_length: L, positions per row, the template's included.
    """

    max_length: int = 512

    def __post_init__(self) -> None:
        if not 8 <= self.max_length <= MAX_ROW_LENGTH:
            raise ConfigError(f"max_length is {self.max_length}: it lies between 8 and {MAX_ROW_LENGTH}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRows:
    """The packed data set as a place for rows."""

    location: Location
    metadata: Metadata
    count: int

    def files(self, shard: int) -> tuple[tuple[str, str], ...]:
        return ((STAGE, shard_name("packed", shard, self.count)),)

    @contextlib.contextmanager
    def open(self, shard: int) -> Iterator[_PackedShard]:
        assert self.metadata.row_length is not None
        assert self.metadata.tokenizer is not None
        columns = packed_columns(self.metadata.row_length, self.metadata.tokenizer.vocabulary_size)
        writer = ShardWriter(self.location, self.files(shard)[0][1], columns, self.metadata, copy=0, shard=shard)
        with writer:
            yield _PackedShard(writer)


@dataclass(frozen=True, slots=True)
class _PackedShard:
    writer: ShardWriter

    def write(self, columns: dict[str, NDArray[Any]], first_row: int) -> None:
        self.writer.write(columns)

    def results(self, ledger: Ledger, read: Ledger | None) -> list[ShardResult]:
        return [ShardResult(stage=STAGE, entry=self.writer.entry, ledger=ledger, read=read)]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackJob:
    """Tokenizes and packs the shards of one source, and hands the rows to every sink.

    Attributes:
        tokenizer_path, tokenizer_sha256, engine: loaded once in each worker process.
    """

    source: DocumentSource
    metadata: Metadata
    tokenizer_path: str
    engine: str
    sinks: tuple[RowSink, ...]

    @property
    def name(self) -> str:
        return self.shards[0][1]

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        return tuple(file for shard in self.source.shards for sink in self.sinks for file in sink.files(shard))

    def __call__(self) -> list[ShardResult]:
        results = []
        for shard, read, stream in self.source.read():
            ledger = Ledger()
            with contextlib.ExitStack() as stack:
                opened = [stack.enter_context(sink.open(shard)) for sink in self.sinks]
                row = 0
                for columns in self.rows(stream, ledger):
                    for sink in opened:
                        sink.write(columns, row)
                    row += len(columns["input_ids"])
            for sink in opened:
                results += sink.results(ledger, read)
        return results

    def rows(self, stream: Iterable[Documents], ledger: Ledger) -> Iterator[dict[str, NDArray[Any]]]:
        """Blocks of rows of one shard; the ledger is complete when they are consumed."""
        facts, length = self.metadata.tokenizer, self.metadata.row_length
        assert facts is not None
        assert length is not None
        engine = worker_engine(self.tokenizer_path, facts.sha256, self.engine)
        sampler = Sampler(engine)
        packer = ConcatPacker(facts, length)
        documents, tokens = ledger.documents, ledger.tokens

        def count(block: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            tokens.out += int(block["num_tokens"].sum(dtype=np.int64))
            return block

        for batch in stream:
            sampler.see(batch.texts)
            ids, lengths, counts = engine.encode(batch.texts)
            ledger.counts.update(counts)
            documents.taken += len(lengths)
            tokens.taken += len(ids)
            empty = int(np.count_nonzero(lengths == 0))
            if empty:
                documents.dropped["no_tokens"] += empty
                lengths = lengths[lengths > 0]
            documents.out += len(lengths)
            yield from map(count, packer.add(ids, lengths))
        yield from map(count, packer.finish())
        tokens.added.update(packer.added)
        ledger.counts.update(Counter(padding=packer.padding))


def packed_metadata(text: Metadata, tokenizer: LoadedTokenizer, options: PackOptions) -> Metadata:
    """What the rows made of a text data set are."""
    facts = tokenizer.facts
    template = len(facts.prefix_ids) + len(facts.suffix_ids)
    if options.max_length <= template:
        raise ConfigError(f"max_length is {options.max_length}: the tokenizer's template alone takes {template}")
    return text.next(stage=STAGE, config=asdict(options), row_length=options.max_length, tokenizer=facts)


def packed_output(
    location: Location,
    metadata: Metadata,
    tokenizer: LoadedTokenizer,
    count: int,
    inputs: dict[str, Any],
    text: Manifest | None,
) -> Output:
    """The data set that `pack` makes.

    Args:
        text: manifest of the text shards; None where the jobs read the documents from files themselves.
    """
    assert metadata.row_length is not None
    return Output(
        location=location,
        metadata=metadata,
        columns=packed_columns(metadata.row_length, tokenizer.facts.vocabulary_size),
        shards=tuple(shard_name("packed", k, count) for k in range(count)),
        inputs=inputs,
        files={f"tokenizer/{name}": content for name, content in tokenizer.files.items()},
        history=None if text is None else lambda: (*text.history, text.ledger),
    )


def pack(
    text: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str],
    options: PackOptions | None = None,
    run: RunOptions | None = None,
    *,
    engine: str = "auto",
) -> StageResult:
    """Text shards to rows of L token ids.

    Args:
        text: what `shard` wrote.
        dest: a folder to create.
        tokenizer: a folder with tokenizer.json, that file, or a name on the hub.
        engine: "auto", "fast" or "tokenizers"; the same bytes from each.

    Raises:
        DataError: `text` is no finished text data set, or damaged.
        TokenizerError: a tokenizer without a mask, padding or separator token, or one that engines disagree on.
        DestinationError: `dest` is taken.
    """
    options, run = options or PackOptions(), run or RunOptions()
    if engine not in ENGINES:
        raise ConfigError(f"engine is {engine!r}: use auto, fast or tokenizers")
    loaded = load_tokenizer(tokenizer)
    data = Data(text, "sharding")
    location = Location(dest)
    metadata = packed_metadata(data.metadata, loaded, options)
    shards = data.manifest.shards
    output = packed_output(location, metadata, loaded, len(shards), {"text": data.manifest.sha256}, data.manifest)
    sink = PackedRows(location=location, metadata=metadata, count=len(shards))
    jobs = [
        PackJob(
            source=TextShard(location=data.location, entry=entry),
            metadata=metadata,
            tokenizer_path=str(tokenizer),
            engine=engine,
            sinks=(sink,),
        )
        for entry in shards
    ]
    return run_stage(
        "pack",
        [output],
        jobs,
        run,
        input_bytes=data.manifest.bytes,
        seconds_per_mb=seconds_per_mb(loaded, engine),
        check=lambda: refuse_no_rows(output, text),
    )[0]


def refuse_no_rows(output: Output, source: object) -> None:
    """Raises InputError when the text holds no token."""
    ledger = output.ledger
    if not ledger.documents.out:
        raise InputError(f"{source}: no documents with any token ({ledger.documents.taken:,} read); nothing to pack")
