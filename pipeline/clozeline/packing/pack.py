"""Stage `pack`: text shards in, token rows out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError, InputError
from clozeline.packing.best_fit import best_fit
from clozeline.packing.concat import ConcatPacker
from clozeline.packing.documents import OneDocument
from clozeline.packing.engines import ENGINES, seconds_per_mb, worker_engine
from clozeline.packing.options import PackOptions
from clozeline.packing.pair_job import PairJob
from clozeline.packing.parts import open_parts
from clozeline.packing.pieces import PiecePacker, Plan
from clozeline.packing.reading import read_tokens
from clozeline.packing.rows import make_frame
from clozeline.packing.sentences import WholeSentences
from clozeline.packing.task import STAGE, PackedRows, PackTask
from clozeline.packing.token_store import StoreJob
from clozeline.packing.tokenizer import LoadedTokenizer, load_tokenizer
from clozeline.run.stage import RunOptions, StageResult, run_stage
from clozeline.store.dataset import Data
from clozeline.store.documents import TextShard
from clozeline.store.ledger import Ledger
from clozeline.store.location import find_location
from clozeline.store.output import Output, ShardResult
from clozeline.store.overlap import refuse_covered, refuse_nested
from clozeline.store.schema import packed_columns, rows_per_batch
from clozeline.store.shards import shard_name

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from clozeline.packing.rows import Frame, Integers
    from clozeline.run.jobs import Job
    from clozeline.run.stage import RunPass
    from clozeline.store.documents import Documents, DocumentSource
    from clozeline.store.manifest import Manifest, Metadata, TokenizerFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class PackJob:
    """Tokenizes and packs the shards of one source, and hands the rows to every sink."""

    source: DocumentSource
    task: PackTask

    @property
    def name(self) -> str:
        return self.shards[0][1]

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        return tuple(file for shard in self.source.shards for file in self.task.files(shard))

    def __call__(self) -> list[ShardResult]:
        task, results = self.task, []
        engine = worker_engine(task.tokenizer_path, task.facts, task.engine)
        for shard, read, stream in self.source.read():
            ledger = Ledger()
            packer = make_packer(task.options, task.facts, ledger)
            origins = RecentDocuments()
            with open_parts(task.part_plan(shard), task.sinks, origins, ledger) as parts:
                for tokens, documents in read_tokens(stream, engine, task.options, ledger):
                    if task.options.provenance:
                        origins.add(documents)
                    for block in packer.add(tokens):
                        parts.add(block)
                for block in packer.finish():
                    parts.add(block)
            results += parts.results(read)
        return results


class RecentDocuments:
    """Ids and bytes of the documents whose rows are still to be written, by running number."""

    def __init__(self) -> None:
        self._known: deque[tuple[str, int]] = deque()
        self._first = 0

    def add(self, documents: Documents) -> None:
        self._known.extend(zip(documents.ids, map(len, documents.texts), strict=True))

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, numbers: Integers, done: int) -> tuple[list[str], list[int]]:
        found = [self._known[n - self._first] for n in numbers.tolist()]
        while self._first < done:
            self._known.popleft()
            self._first += 1
        return [i for i, _ in found], [b for _, b in found]


def make_packer(options: PackOptions, facts: TokenizerFacts, ledger: Ledger) -> ConcatPacker | PiecePacker:
    """The packer of a scheme that works shard by shard.

    Args:
        ledger: of the text shard; told of what is added, left out and padded.
    """
    frame = row_frame(options, facts)
    drop = options.remainder == "drop"
    if options.packing == "concat":
        return ConcatPacker(frame, rows_per_batch(options.max_length), ledger, drop_remainder=drop)
    if options.packing == "best-fit":
        # The more documents at hand, the fewer gaps.
        return PiecePacker(best_fit, frame, ledger, window=512 * max(options.max_length, 1024))
    plan: Plan = WholeSentences(across=options.packing == "sentences", drop_remainder=drop)
    if options.packing == "documents":
        plan = OneDocument(stride=options.stride, min_tokens=options.min_tokens)
    return PiecePacker(plan, frame, ledger, window=max(2**18, 16 * options.max_length))


def row_frame(options: PackOptions, facts: TokenizerFacts) -> Frame:
    """What surrounds documents in a row."""
    return make_frame(facts, options.max_length, separator=options.separator, add_prefix=options.add_prefix)


def document_slots(options: PackOptions, facts: TokenizerFacts) -> int:
    """The most documents that a row can hold."""
    if options.packing in ("documents", "doc-sentences"):
        return 1
    frame = row_frame(options, facts)
    join, shortest = len(frame.join), options.min_document_tokens
    # All whole but the first and the last, which `concat` and `sentences` may have cut down to a token.
    return max(1, min(2 + (frame.capacity - 2) // (shortest + join), (frame.capacity + join) // (1 + join)))


def packed_metadata(text: Metadata, tokenizer: LoadedTokenizer, options: PackOptions) -> Metadata:
    """What the rows made of a text data set are."""
    facts = tokenizer.facts
    template = len(facts.prefix_ids) + len(facts.suffix_ids)
    needed = template + (len(facts.pair_ids) + 1 if options.packing == "pairs" else 0)
    shortest = options.bins[0] if options.bins else options.max_length
    if shortest <= needed:
        raise ConfigError(f"rows of {shortest} positions are too short: the tokenizer's template alone takes {needed}")
    if options.stride >= options.max_length - template:
        raise ConfigError(
            f"stride is {options.stride}: a row holds {options.max_length - template} tokens and must repeat fewer than that"
        )
    config = options.to_json()
    if options.boundaries:
        config["document_slots"] = document_slots(options, facts)
    return text.next(stage=STAGE, config=config, row_length=options.max_length, tokenizer=facts)


def packed_output(task: PackTask, tokenizer: LoadedTokenizer, inputs: dict[str, Any], text: Manifest | None) -> Output:
    """The data set that `pack` makes.

    Args:
        text: manifest of the text shards; None where the jobs read the documents from files themselves.
    """
    return Output(
        location=task.location,
        metadata=task.metadata,
        columns=packed_columns(task.metadata),
        shards=tuple(shard_name("packed", k, task.count) for k in range(task.count)),
        inputs=inputs,
        files={f"tokenizer/{name}": content for name, content in tokenizer.files.items()},
        history=None if text is None else lambda: (*text.history, text.ledger),
    )


def pack_jobs(
    task: PackTask, sources: Sequence[DocumentSource]
) -> tuple[Sequence[Job], Callable[[RunPass], None] | None]:
    """The jobs of a run, and what must run before them."""
    if task.options.packing != "pairs":
        return [PackJob(source=source, task=task) for source in sources], None
    stores = [StoreJob(source=source, task=task) for source in sources]
    copies = range(task.options.pair_copies)
    jobs = [PairJob(task=task, shard=k, copy=copy) for copy in copies for k in range(task.text_shards)]
    return jobs, lambda run_pass: run_pass([job for job in stores if not job.is_done])


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
        InputError: `dest` and `text` or `tokenizer` lie one inside the other; the text holds no token.
    """
    options, run = options or PackOptions(), run or RunOptions()
    if engine not in ENGINES:
        raise ConfigError(f"engine is {engine!r}: use auto, fast or tokenizers")
    tokenizer = run.place_of_tokenizer(tokenizer)
    loaded = load_tokenizer(tokenizer)
    data = Data(run.place(text), "sharding")
    location = find_location(run.place(dest))
    refuse_nested(str(location), [str(data.location)])
    refuse_covered(str(location), [str(data.location), tokenizer])
    metadata = packed_metadata(data.metadata, loaded, options)
    entries = data.manifest.shards
    task = PackTask(
        options=options,
        metadata=metadata,
        location=location,
        tokenizer_path=str(tokenizer),
        engine=engine,
        text_shards=len(entries),
        sinks=(PackedRows(location=location, metadata=metadata, count=len(entries) * options.parts),),
    )
    output = packed_output(task, loaded, {"text": data.manifest.sha256}, data.manifest)
    jobs, before = pack_jobs(task, [TextShard(location=data.location, entry=entry) for entry in entries])
    return run_stage(
        "pack",
        [output],
        jobs,
        run,
        input_bytes=data.manifest.bytes,
        seconds_per_mb=seconds_per_mb(loaded, engine),
        before=before,
        check=lambda: refuse_no_rows(output, text),
    )[0]


def refuse_no_rows(output: Output, source: object) -> None:
    """Raises InputError when the text holds no token."""
    ledger = output.ledger
    if not ledger.documents.out:
        dropped = ", ".join(f"{n:,} {reason.replace('_', ' ')}" for reason, n in ledger.documents.dropped.items() if n)
        raise InputError(
            f"{source}: no row can be made of its {ledger.documents.taken:,} documents (dropped: {dropped or 'none'}); "
            "nothing to pack"
        )
