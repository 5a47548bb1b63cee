"""Stage `shard`: raw text in, text shards out."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError, InputError
from clozeline.run.stage import RunOptions, StageResult, run_stage
from clozeline.sharding.clean import Cleaned
from clozeline.sharding.files import InputFile, find_files, measure, refuse_changed
from clozeline.sharding.options import CleanOptions, ReadOptions, SelectOptions
from clozeline.sharding.plan import plan_ranges, shard_count
from clozeline.sharding.select import DigestJob, Selected, find_duplicates
from clozeline.sharding.shuffle import Shuffled, SpillJob, bucket_count
from clozeline.sharding.stdin import spooled
from clozeline.store.documents import Documents
from clozeline.store.location import WORK, Location, find_location
from clozeline.store.manifest import Metadata, digest
from clozeline.store.output import Output, ShardResult
from clozeline.store.overlap import refuse_covered, refuse_nested
from clozeline.store.schema import text_columns
from clozeline.store.shards import ShardWriter, shard_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from clozeline.run.stage import RunPass
    from clozeline.store.documents import DocumentSource

STAGE = "sharding"
_SECONDS_PER_MB = 0.006
_BATCH_BYTES = 2**20
_BATCH_DOCUMENTS = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardOptions:
    """How a corpus becomes text shards.

    Attributes:
        num_shards: how many; None for as many as `shard_bytes` makes, at least min(8, MiB of input).
        shard_bytes: about how many bytes of decompressed input a shard holds.
    """

    num_shards: int | None = None
    shard_bytes: int = 64 * 2**20
    read: ReadOptions = field(default_factory=ReadOptions)
    clean: CleanOptions = field(default_factory=CleanOptions)
    select: SelectOptions = field(default_factory=SelectOptions)

    def __post_init__(self) -> None:
        if self.num_shards is not None and not 1 <= self.num_shards <= 99_999:
            raise ConfigError(f"num_shards is {self.num_shards}: it lies between 1 and 99,999")
        if self.shard_bytes < 1024:
            raise ConfigError(f"shard_bytes is {self.shard_bytes}: at least 1024 is needed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """An input that is measured and divided, before anything is read for good.

    Attributes:
        metadata: of the text shards that it makes.
        files: the input files, in order.
        ranges: what each group of shards is read from.
        count: number of shards.
    """

    metadata: Metadata
    files: tuple[InputFile, ...]
    ranges: tuple[DocumentSource, ...]
    count: int
    select: SelectOptions

    @property
    def inputs(self) -> dict[str, Any]:
        """By what `--resume` knows the files again; never recorded in the data."""
        return {f.name: [f.bytes, f.modified] for f in self.files if f.format != "hf"}

    @property
    def folders(self) -> set[str]:
        """In which the files lie."""
        return {os.path.split(f.path)[0] or "." for f in self.files if f.format != "hf"}

    @property
    def bytes(self) -> int:
        """Of the input, decompressed."""
        return sum(f.bytes for f in self.files)

    def sources(self, work: Location) -> list[DocumentSource]:
        """Where the documents of the shards come from, once `passes` has run.

        Args:
            work: a folder for the passes over the whole corpus that shuffling and de-duplication need.
        """
        if self.select.shuffle:
            buckets = self._buckets
            return [
                Shuffled(shard=k, count=self.count, place=work / "shuffle", buckets=buckets) for k in range(self.count)
            ]
        return list(self._selected(work))

    @property
    def _buckets(self) -> int:
        return bucket_count(self.bytes, self.count)

    def _selected(self, work: Location) -> list[Selected]:
        duplicates = work / "duplicates" if self.select.removes_duplicates else None
        return [Selected(source=r, options=self.select, duplicates=duplicates) for r in self.ranges]

    def passes(self, work: Location) -> Callable[[RunPass], None]:
        """What must run before the sources can be read."""

        def run(run_pass: RunPass) -> None:
            if self.select.removes_duplicates:
                place = work / "duplicates"
                plain = [Selected(source=r, options=self.select, duplicates=None) for r in self.ranges]
                jobs = [DigestJob(source=s, place=place) for s in plain]
                run_pass([job for job in jobs if not job.is_done])
                find_duplicates(place, self.count)
            if self.select.shuffle:
                spills = [
                    SpillJob(source=s, place=work / "shuffle", buckets=self._buckets) for s in self._selected(work)
                ]
                run_pass([job for job in spills if not job.is_done])

        return run


def plan_corpus(sources: Sequence[str | os.PathLike[str]], options: ShardOptions, run: RunOptions) -> Corpus:
    """Finds, measures and divides the input.

    Raises:
        InputError: nothing to read, or something that cannot be read.
    """
    names = [str(s) for s in sources]
    if not names:
        raise InputError("no SOURCE given: name at least one file, folder, glob or hf:NAME")
    files = measure(find_files(names, run.warn), run.worker_count, options.read)
    total = sum(f.bytes for f in files)
    if not total:
        raise InputError(f"{', '.join(names)}: nothing but empty files, no documents")
    for file in files:
        _warn_of_blank_lines(file, options.read, run)
    count = shard_count(total, options.num_shards, options.shard_bytes)
    config = asdict(options)
    config["num_shards"] = count
    del config["shard_bytes"]  # only its consequence matters
    del config["read"]["max_compression_ratio"]  # it only refuses
    if not options.select.shuffle and not options.select.held_out:
        del config["select"]["seed"]  # nothing is drawn
    listing = [[f.name, f.format, f.compression, f.encoding, f.bytes, f.rows] for f in files]
    ranges: tuple[DocumentSource, ...] = tuple(plan_ranges(files, count, options.read))
    if options.clean == CleanOptions():
        del config["clean"]
    else:
        ranges = tuple(Cleaned(source=r, options=options.clean) for r in ranges)
    metadata = Metadata(stage=STAGE, config=config, upstream=digest(listing))
    return Corpus(metadata=metadata, files=tuple(files), ranges=ranges, count=count, select=options.select)


def _warn_of_blank_lines(file: InputFile, options: ReadOptions, run: RunOptions) -> None:
    """Most corpora with blank lines in them mean these to separate documents."""
    if file.format != "text" or options.mode(file.name) != "lines":
        return
    with file.open() as stream:
        lines = stream.read(2**16).split(b"\n")[:-1]
    blank = sum(1 for line in lines if not line.strip())
    if blank >= 3 and blank * 20 >= len(lines):
        run.warn(
            f"{file.path}: {blank} of its first {len(lines)} lines are blank, yet every line is taken for a document; "
            "where blank lines separate documents, say --documents blank-lines"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TextJob:
    """Writes the text shards of one source."""

    source: DocumentSource
    location: Location
    metadata: Metadata
    count: int

    @property
    def name(self) -> str:
        return shard_name("text", self.source.shards[0], self.count)

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        return tuple((STAGE, shard_name("text", k, self.count)) for k in self.source.shards)

    def __call__(self) -> list[ShardResult]:
        results = []
        for shard, ledger, stream in self.source.read():
            writer = ShardWriter(
                self.location, shard_name("text", shard, self.count), text_columns(), self.metadata, copy=0, shard=shard
            )
            with writer:
                for batch in rebatch(stream):
                    writer.write_text(batch.ids, batch.texts)
            results.append(ShardResult(stage=STAGE, entry=writer.entry, ledger=ledger))
        return results


def rebatch(stream: Iterable[Documents]) -> Iterator[Documents]:
    """The same documents in batches that depend on the documents alone, not on how they were read."""
    ids: list[str] = []
    texts: list[bytes] = []
    held = 0
    for documents in stream:
        for doc_id, text in zip(documents.ids, documents.texts, strict=True):
            ids.append(doc_id)
            texts.append(text)
            held += len(text)
            if held >= _BATCH_BYTES or len(ids) == _BATCH_DOCUMENTS:
                yield Documents(ids, texts)
                ids, texts, held = [], [], 0
    if ids:
        yield Documents(ids, texts)


def text_output(corpus: Corpus, location: Location) -> Output:
    """The data set that `shard` makes."""
    return Output(
        location=location,
        metadata=corpus.metadata,
        columns=text_columns(),
        shards=tuple(shard_name("text", k, corpus.count) for k in range(corpus.count)),
        inputs=corpus.inputs,
        history=tuple,
    )


def shard(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    dest: str | os.PathLike[str],
    options: ShardOptions | None = None,
    run: RunOptions | None = None,
) -> StageResult:
    """Raw text to text shards.

    Args:
        sources: files, folders, globs, `hf:NAME[@SPLIT]`, `-` or `stdin:ENDING`.
        dest: a folder to create.

    Raises:
        InputError: input that is missing, damaged or no text, or holds no document.
        DestinationError: `dest` is taken.

    Memory: a few blocks of 1 MiB a worker, and the longest document.
    """
    options, run = options or ShardOptions(), run or RunOptions()
    with spooled([sources] if isinstance(sources, (str, os.PathLike)) else list(sources)) as names:
        return _shard([run.place(name) for name in names], run.place(dest), options, run)


def _shard(paths: list[str], dest: str, options: ShardOptions, run: RunOptions) -> StageResult:
    refuse_nested(dest, paths)
    corpus = plan_corpus(paths, options, run)
    refuse_covered(dest, corpus.folders)
    location = find_location(dest)
    output = text_output(corpus, location)
    work = location / WORK
    jobs = [
        TextJob(source=s, location=location, metadata=corpus.metadata, count=corpus.count) for s in corpus.sources(work)
    ]

    def check() -> None:
        refuse_changed(corpus.files)
        refuse_empty(output, paths)

    return run_stage(
        "shard",
        [output],
        jobs,
        run,
        input_bytes=corpus.bytes,
        seconds_per_mb=_SECONDS_PER_MB,
        before=corpus.passes(work),
        check=check,
    )[0]


def refuse_empty(output: Output, sources: Sequence[object]) -> None:
    """Raises InputError when no document is left."""
    account = output.ledger.documents
    if not account.out:
        dropped = ", ".join(f"{n:,} {reason}" for reason, n in account.dropped.items()) or "none found"
        raise InputError(
            f"{', '.join(map(str, sources))}: no documents ({dropped}); check --documents, --text-field and the input"
        )
