"""Raw text to masked rows in one go: what `shard`, `pack` and `mask` make one after another, with the same bytes.

Text shards that nobody asked to keep never touch the disk, and rows are masked as they are packed.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError
from clozeline.masking.mask import MaskedRows, MaskOptions, masked_metadata, masked_output
from clozeline.packing.engines import ENGINES, seconds_per_mb
from clozeline.packing.options import PackOptions
from clozeline.packing.pack import pack_jobs, packed_metadata, packed_output, refuse_no_rows
from clozeline.packing.task import PackedRows, PackTask
from clozeline.packing.tokenizer import load_tokenizer
from clozeline.run.stage import RunOptions, StageResult, run_stage
from clozeline.sharding.files import refuse_changed
from clozeline.sharding.shard import ShardOptions, plan_corpus, shard
from clozeline.sharding.stdin import spooled
from clozeline.store.dataset import Data
from clozeline.store.documents import TextShard
from clozeline.store.location import WORK, find_location
from clozeline.store.overlap import refuse_covered, refuse_nested

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clozeline.run.stage import RunPass
    from clozeline.store.documents import DocumentSource
    from clozeline.store.manifest import Manifest, Metadata
    from clozeline.store.output import Output
    from clozeline.store.sinks import RowSink


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareResult:
    """The data sets that were made; None for those not asked for."""

    text: StageResult | None
    packed: StageResult
    masked: StageResult | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def prepare(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    dest: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str],
    shard_options: ShardOptions | None = None,
    pack_options: PackOptions | None = None,
    mask_options: MaskOptions | None = None,
    run: RunOptions | None = None,
    *,
    static: bool = True,
    keep_text: bool = False,
    engine: str = "auto",
) -> PrepareResult:
    """Raw text to `dest/packed`, `dest/masked` (when `static`) and `dest/text` (when `keep_text`).

    Args and errors: those of `shard`, `pack` and `mask`.
    """
    shard_options, pack_options = shard_options or ShardOptions(), pack_options or PackOptions()
    mask_options, run = mask_options or MaskOptions(), run or RunOptions()
    if engine not in ENGINES:
        raise ConfigError(f"engine is {engine!r}: use auto, fast or tokenizers")
    if static and mask_options.labels != "dense":
        raise ConfigError(
            "sparse labels need the packed rows first: use `run --dynamic`, then `mask DEST/packed DEST/masked --labels sparse`"
        )
    with spooled([sources] if isinstance(sources, (str, os.PathLike)) else list(sources)) as paths:
        return _prepare(
            [run.place(path) for path in paths],
            run.place(dest),
            run.place_of_tokenizer(tokenizer),
            shard_options,
            pack_options,
            mask_options,
            run,
            static=static,
            keep_text=keep_text,
            engine=engine,
        )


def _prepare(
    paths: list[str],
    dest: str,
    tokenizer: str,
    shard_options: ShardOptions,
    pack_options: PackOptions,
    mask_options: MaskOptions,
    run: RunOptions,
    *,
    static: bool,
    keep_text: bool,
    engine: str,
) -> PrepareResult:
    loaded = load_tokenizer(tokenizer)
    refuse_nested(dest, paths)
    place = find_location(dest)
    packed_place, masked_place, text_place = place / "packed", place / "masked", place / "text"

    corpus = plan_corpus(paths, shard_options, run)
    for output in (packed_place, masked_place, text_place):
        refuse_covered(str(output), (*corpus.folders, tokenizer))
    metadata = packed_metadata(corpus.metadata, loaded, pack_options)
    text_result: StageResult | None = None
    text: Manifest | None = None
    before = None
    readers: list[DocumentSource]
    if keep_text:
        text_result = shard(paths, str(text_place), shard_options, run)
        text = Data(str(text_place), "sharding").manifest
        readers = [TextShard(location=text_place, entry=entry) for entry in text.shards]
        inputs = {"text": text.sha256}
    else:
        work = packed_place / WORK
        readers = corpus.sources(work)
        before = corpus.passes(work)
        inputs = corpus.inputs

    count = corpus.count * pack_options.parts
    sinks: list[RowSink] = [PackedRows(location=packed_place, metadata=metadata, count=count)]
    masked: tuple[Metadata, MaskedRows] | None = None
    if static:
        masked_meta = masked_metadata(metadata, mask_options)
        sink = MaskedRows(
            location=masked_place,
            metadata=masked_meta,
            rule=mask_options.rule,
            copies=mask_options.copies,
            packed_shards=count,
        )
        sinks.append(sink)
        masked = masked_meta, sink
    task = PackTask(
        options=pack_options,
        metadata=metadata,
        location=packed_place,
        tokenizer_path=str(tokenizer),
        engine=engine,
        text_shards=corpus.count,
        sinks=tuple(sinks),
    )
    packed = packed_output(task, loaded, inputs, text)
    outputs: list[Output] = [packed]
    if masked is not None:
        outputs.append(masked_output(masked_place, *masked, packed.files, inputs, packed.account))
    jobs, first_pass = pack_jobs(task, readers)

    def passes(run_pass: RunPass) -> None:
        for each in (before, first_pass):
            if each is not None:
                each(run_pass)

    def check() -> None:
        refuse_changed(corpus.files)
        refuse_no_rows(packed, ", ".join(map(str, paths)))

    results = run_stage(
        "run",
        outputs,
        jobs,
        run,
        input_bytes=corpus.bytes,
        seconds_per_mb=seconds_per_mb(loaded, engine),
        before=passes,
        check=check,
    )
    return PrepareResult(text=text_result, packed=results[0], masked=results[1] if static else None)
