"""Options that several commands share, and the configuration file."""

from __future__ import annotations

import importlib
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from clozeline.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from clozeline.mask_function import MaskRule
    from clozeline.masking.mask import MaskOptions
    from clozeline.packing.options import PackOptions
    from clozeline.run.stage import RunOptions
    from clozeline.sharding.shard import ShardOptions

    Command = TypeVar("Command", bound=Callable[..., Any])

_RUN_SECTIONS = ("shard", "pack", "mask", "run")  # what `run` takes its values from; the last one wins


def _all_of(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


# Configuration file


def _read_config(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is None:
        return
    try:
        config = tomllib.loads(value.read_text("utf-8"))
    except (
        OSError,
        ValueError,
        RecursionError,
    ) as error:  # not UTF-8, not TOML, a number of 5,000 digits, 2,000 brackets
        raise ConfigError(f"{value}: cannot be read as TOML ({error})") from error
    ctx.default_map = _defaults(value, config, ctx.info_name or "")


def _defaults(path: Path, config: dict[str, Any], command: str) -> dict[str, Any]:
    """The values that a configuration holds for a command; every section and key is checked."""
    from clozeline.cli.main import COMMANDS

    defaults: dict[str, Any] = {}
    origin: dict[str, str] = {}
    sections = _RUN_SECTIONS if command == "run" else (command,)
    for section, values in config.items():
        if section not in COMMANDS:
            raise ConfigError(f"{path}: unknown section [{section}]; there are {', '.join(f'[{c}]' for c in COMMANDS)}")
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: {section!r} stands outside a section; write it under [{command}]")
        known = _option_names(section)
        for key in values:
            if key.replace("-", "_") not in known:
                options = ", ".join(sorted(known))
                raise ConfigError(f"{path}: unknown key {key!r} in [{section}]; there are {options}")
            value = values[key]
            items = value if isinstance(value, list) and key.replace("-", "_") in _lists(section) else [value]
            if not all(isinstance(item, (str, int, float)) for item in items):
                raise ConfigError(f"{path}: {key} in [{section}] is {str(value)[:50]!r}, which no option can be")
    own = _option_names(command)
    for section in sections:
        for key, value in config.get(section, {}).items():
            name = key.replace("-", "_")
            if name not in own:
                continue
            if section != "run" and defaults.get(name, value) != value:
                raise ConfigError(
                    f"{path}: {key} is {defaults[name]!r} in [{origin[name]}] and {value!r} in [{section}]; "
                    "`run` has one for both: set it in [run]"
                )
            defaults[name], origin[name] = value, section
    return defaults


def _lists(command: str) -> set[str]:
    """Options that may be given several times."""
    params = importlib.import_module(f"clozeline.cli.{command}").command.params
    return {p.name for p in params if isinstance(p, click.Option) and p.multiple and p.name}


def _option_names(command: str) -> set[str]:
    params = importlib.import_module(f"clozeline.cli.{command}").command.params
    return {p.name for p in params if isinstance(p, click.Option) and p.name not in ("config", None)}


config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_read_config,
    is_eager=True,
    expose_value=False,
    help="TOML file with a section for each command ([mask] seed = 7). A flag beats the environment (CLOZELINE_MASK_SEED), "
    "which beats the file.",
)

# Output

output_options = _all_of(
    click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of text."),
    click.option("-q", "--quiet", is_flag=True, help="No progress, no warnings."),
    click.option("-v", "--verbose", is_flag=True, help="Tell of each finished shard."),
    config_option,
)

# How work is run

workers_option = click.option(
    "-j", "--workers", type=click.IntRange(min=1), help="Workers, at most.  [default: usable cores]"
)
engine_option = click.option(
    "--engine",
    type=click.Choice(["auto", "fast", "tokenizers"]),
    default="auto",
    show_default=True,
    help="Tokenizer engine; the same ids from each.",
)
run_options = _all_of(
    workers_option,
    click.option(
        "--executor",
        type=click.Choice(["auto", "processes", "serial", "dask"]),
        default="auto",
        show_default=True,
        help="Where the work is done; never changes a byte. auto: in worker processes if there is enough to do for them.",
    ),
    click.option("--dask-address", metavar="URL", help="Scheduler of a running dask cluster (tcp://10.0.0.1:8786)."),
    click.option("--dask-scheduler-file", metavar="FILE", help="The same by the file that `dask scheduler` writes."),
    click.option("--profile", is_flag=True, help="Tell where the time went: seconds and MB/s of input by section."),
    click.option(
        "--task-timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="End a job that takes longer in a worker process, and try it once more.  [default: none]",
    ),
    click.option("--resume", is_flag=True, help="Finish what an earlier run of the same work has left in DEST."),
    click.option("--force", is_flag=True, help="Replace what is in DEST."),
)


def build_run_options(values: dict[str, Any], quiet: bool, verbose: bool) -> RunOptions:
    from clozeline.cli.report import print_profile, progress, warn
    from clozeline.run.stage import RunOptions

    return RunOptions(
        workers=values["workers"],
        executor=values["executor"],
        dask_address=values["dask_address"],
        dask_scheduler_file=values["dask_scheduler_file"],
        resume=values["resume"],
        force=values["force"],
        task_timeout=values["task_timeout"],
        on_progress=None if quiet else progress(verbose=verbose),
        on_warning=None if quiet else warn,
        on_profile=print_profile if values["profile"] else None,
    )


# shard

seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    default=0,
    show_default=True,
    help="Of everything drawn at random; recorded.",
)
shard_options = _all_of(
    click.option(
        "--documents",
        multiple=True,
        default=("lines",),
        show_default=True,
        metavar="lines|blank-lines|files|wiki[:GLOB]",
        help="How .txt files hold documents: one a line, separated by blank lines, one a file, or as WikiExtractor's <doc> "
        "elements (files called wiki_NN always do). With :GLOB for the files whose name matches; may be given several times, the "
        "last that fits decides.",
    ),
    click.option(
        "--encoding",
        default="utf-8",
        show_default=True,
        metavar="NAME|auto",
        help="Of text, JSONL and CSV files: a name that Python knows, or auto to find it out for each file (and count them).",
    ),
    click.option("--text-field", default="text", show_default=True, help="Key or column of the text in other formats."),
    click.option(
        "--errors",
        type=click.Choice(["strict", "skip", "replace"]),
        default="strict",
        show_default=True,
        help="Records that are no valid text: stop, drop and count, or put U+FFFD for invalid bytes and count.",
    ),
    click.option(
        "--max-document-bytes",
        type=click.IntRange(min=1024),
        default=64 * 2**20,
        show_default=True,
        help="Longer documents are cut at white space.",
    ),
    click.option(
        "--max-compression-ratio",
        type=click.IntRange(min=1),
        default=250,
        show_default=True,
        help="How many times its bytes on disk a compressed file may grow to (to 64 MiB it always may).",
    ),
    click.option("--num-shards", type=click.IntRange(1, 99_999), help="How many shards.  [default: by --shard-bytes]"),
    click.option(
        "--shard-bytes",
        type=click.IntRange(min=1024),
        default=64 * 2**20,
        show_default=True,
        help="Input bytes in a shard, about; small inputs make up to 8 shards.",
    ),
    click.option("--shuffle", is_flag=True, help="Shuffle all documents globally, by the seed."),
    click.option(
        "--held-out",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.0,
        show_default=True,
        help="Share of documents to hold out, by a hash of their text.",
    ),
    click.option(
        "--split",
        type=click.Choice(["train", "held-out"]),
        default="train",
        show_default=True,
        help="Which side of the hold-out to write.",
    ),
    click.option("--deduplicate", is_flag=True, help="Keep the first of documents with equal text."),
    click.option(
        "--near-duplicates", is_flag=True, help="Keep the first of documents that share most of their text (MinHash)."
    ),
    click.option(
        "--repair", is_flag=True, help="Mend mojibake (text that was once read in a wrong encoding) with ftfy."
    ),
    click.option(
        "--normalize",
        type=click.Choice(["NFC", "NFD", "NFKC", "NFKD"]),
        help="Unicode normalisation form.  [default: none]",
    ),
    click.option("--remove-controls", is_flag=True, help="Remove control characters and byte order marks in the text."),
    click.option(
        "--scrub",
        multiple=True,
        type=click.Choice(["urls", "emails", "numbers"]),
        help="Put <url>, <email> or <number> (7 digits and more) in their place; may be given several times.",
    ),
    click.option(
        "--min-characters",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Drop documents with fewer characters.",
    ),
    click.option(
        "--max-characters", type=click.IntRange(min=1), help="Drop documents with more characters.  [default: none]"
    ),
    click.option(
        "--keep-languages",
        metavar="CODE,...",
        help="Drop documents in other languages than these (en,de), as py3langid finds them.  [default: keep all]",
    ),
)


def build_shard_options(values: dict[str, Any]) -> ShardOptions:
    from clozeline.sharding.options import CleanOptions, ReadOptions, SelectOptions
    from clozeline.sharding.shard import ShardOptions

    return ShardOptions(
        num_shards=values["num_shards"],
        shard_bytes=values["shard_bytes"],
        read=ReadOptions(
            documents=tuple(values["documents"]),
            encoding=values["encoding"],
            text_field=values["text_field"],
            errors=values["errors"],
            max_document_bytes=values["max_document_bytes"],
            max_compression_ratio=values["max_compression_ratio"],
        ),
        clean=CleanOptions(
            repair=values["repair"],
            normalize=values["normalize"],
            remove_controls=values["remove_controls"],
            scrub=tuple(values["scrub"]),
            min_characters=values["min_characters"],
            max_characters=values["max_characters"],
            keep_languages=tuple(filter(None, (values["keep_languages"] or "").split(","))),
        ),
        select=SelectOptions(
            seed=values["seed"],
            shuffle=values["shuffle"],
            held_out=values["held_out"],
            split=values["split"],
            deduplicate=values["deduplicate"],
            near_duplicates=values["near_duplicates"],
        ),
    )


# pack


class _Bins(click.ParamType[tuple[int, ...]]):
    """64,128,256,512 as a tuple."""

    name = "LENGTHS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, (tuple, list)):
            return tuple(int(v) for v in value)
        try:
            return tuple(int(part) for part in value.split(",") if part.strip())
        except ValueError:
            self.fail(f"{value!r} is no list of row lengths such as 64,128,256,512", param, ctx)


pack_options = _all_of(
    click.option("--tokenizer", required=True, help="Folder with tokenizer.json, that file, or a name on the hub."),
    click.option(
        "--max-length",
        type=click.IntRange(8, 8192),
        default=512,
        show_default=True,
        help="Positions per row, special tokens included.",
    ),
    click.option(
        "--packing",
        type=click.Choice(["concat", "sentences", "doc-sentences", "documents", "best-fit", "pairs"]),
        default="concat",
        show_default=True,
        help="How documents fill rows. concat: end to end, cut wherever a row is full. sentences: whole sentences, across "
        "documents; doc-sentences: within one. documents: rows never cross documents. best-fit: whole documents, several a row. "
        "pairs: two segments a row, for --objective.",
    ),
    click.option(
        "--boundaries", is_flag=True, help="Add the column document_lengths: tokens of each document in a row."
    ),
    click.option(
        "--provenance", is_flag=True, help="Write provenance/*.parquet: which document every part of a row comes from."
    ),
    click.option(
        "--separator/--no-separator",
        default=True,
        show_default=True,
        help="Separator token between the documents of a row.",
    ),
    click.option(
        "--add-prefix",
        is_flag=True,
        help="The template's prefix ([CLS]) before every document of a row, not only the first.",
    ),
    click.option(
        "--remainder",
        type=click.Choice(["pad", "drop"]),
        default="pad",
        show_default=True,
        help="concat, sentences: what to do with the last row of a shard when it is not full.",
    ),
    click.option(
        "--min-document-tokens",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Drop documents with fewer tokens.",
    ),
    click.option(
        "--max-document-tokens",
        type=click.IntRange(min=1),
        help="Keep only that many tokens of a document.  [default: all]",
    ),
    click.option(
        "--min-tokens",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="documents: drop the last piece of a cut document when it has fewer tokens of its own.",
    ),
    click.option(
        "--stride",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="documents: tokens that a piece of a cut document repeats of the piece before.",
    ),
    click.option(
        "--sentences",
        type=click.Choice(["sentencex", "lines"]),
        default="sentencex",
        show_default=True,
        help="Where text is split: by the rules of sentencex (pip install 'clozeline[sentences]'), or at line ends.",
    ),
    click.option("--language", default="en", show_default=True, help="ISO 639-1 code, for sentencex."),
    click.option(
        "--objective",
        type=click.Choice(["nsp", "sop"]),
        default="nsp",
        show_default=True,
        help="pairs: is B the next segment or one of another document (nsp); are A and B in order (sop)?",
    ),
    click.option(
        "--pair-copies",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        help="pairs: how many times to draw pairs from the whole text.",
    ),
    click.option(
        "--short-sequence-prob",
        type=click.FloatRange(0, 1),
        default=0.1,
        show_default=True,
        help="pairs: share of pairs of a length drawn at random.",
    ),
    click.option(
        "--word-starts",
        type=click.Choice(["tokenizer", "jieba"]),
        is_flag=False,
        flag_value="tokenizer",
        help="Add the column word_starts, for whole-word masks where ids do not tell (all but WordPiece): by the tokenizer's words "
        "and single Han characters, or with jieba by its Chinese words (pip install 'clozeline[zh]').",
    ),
    click.option(
        "--bins",
        type=_Bins(),
        default=(),
        help="documents, doc-sentences, pairs: row lengths, such as 64,128,256,512; each row goes to shards of the shortest "
        "that holds it. The last one is --max-length.",
    ),
)
_PACK_VALUES = (
    "max_length",
    "packing",
    "boundaries",
    "provenance",
    "separator",
    "add_prefix",
    "remainder",
    "min_document_tokens",
    "max_document_tokens",
    "min_tokens",
    "stride",
    "sentences",
    "language",
    "objective",
    "pair_copies",
    "short_sequence_prob",
    "seed",
    "bins",
    "word_starts",
)


def build_pack_options(values: dict[str, Any]) -> PackOptions:
    from clozeline.packing.options import PackOptions

    return PackOptions(**{key: values[key] for key in _PACK_VALUES})


# mask

_probability = click.FloatRange(0, 1)


class _Probabilities(click.ParamType):  # type: ignore[type-arg]
    """One probability, or one for each copy, with commas between them."""

    name = "probability"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | tuple[float, ...]:
        if isinstance(value, (float, int)):
            return float(value)
        try:
            values = tuple(float(part) for part in (value if isinstance(value, (list, tuple)) else value.split(",")))
        except ValueError:
            self.fail(f"{value!r} is not a number, or numbers with commas between them", param, ctx)
        return values[0] if len(values) == 1 else values


class _Ids(click.ParamType):  # type: ignore[type-arg]
    """Token ids and ranges of ids, with commas between them."""

    name = "ids"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, int], ...]:
        if isinstance(value, tuple):
            return value
        ranges = []
        for part in str(value).split(","):
            first, dash, last = part.strip().partition("-")
            if not first.isdigit() or (dash and not last.isdigit()):
                self.fail(f"{part!r} is neither a token id nor a range of them (1-99)", param, ctx)
            ranges.append((int(first), int(last) if dash else int(first)))
        return tuple(ranges)


rule_options = _all_of(
    click.option(
        "--selection",
        type=click.Choice(["bernoulli", "exact"]),
        default="bernoulli",
        show_default=True,
        help="Each token (word, span) on its own, or the same number of tokens in rows of the same length.",
    ),
    click.option(
        "--mask-prob",
        type=_Probabilities(),
        default="0.15",
        show_default=True,
        metavar="P[,P...]",
        help="Share of tokens selected; with commas one for each copy, the last for all further ones.",
    ),
    click.option(
        "--mask-token-prob",
        type=_probability,
        default=0.8,
        show_default=True,
        help="Of these, share set to the mask token.",
    ),
    click.option(
        "--random-token-prob",
        type=_probability,
        default=0.1,
        show_default=True,
        help="Of these, share set to a random token.",
    ),
    click.option("--whole-word", "unit", flag_value="word", help="Select words as a whole."),
    click.option("--spans", "unit", flag_value="span", help="Select spans of words as a whole."),
    click.option(
        "--span-lengths",
        type=click.Choice(["geometric", "inverse"]),
        default="geometric",
        show_default=True,
        help="Words in a span: SpanBERT's distribution, or inverse to the length as ALBERT's n-grams.",
    ),
    click.option(
        "--span-prob", type=_probability, default=0.2, show_default=True, help="Parameter of the geometric lengths."
    ),
    click.option(
        "--max-span", type=click.IntRange(1, 256), default=10, show_default=True, help="Longest span, in words."
    ),
    click.option(
        "--action-unit",
        type=click.Choice(["token", "unit"]),
        default="token",
        show_default=True,
        help="Draw what becomes of each selected token, or of each word or span.",
    ),
    click.option("--max-predictions", type=click.IntRange(min=1), help="Most tokens selected in a row."),
    click.option("--allow-lower-rate", is_flag=True, help="Let --max-predictions lower the rate by more than a tenth."),
    click.option(
        "--never-select",
        type=_Ids(),
        metavar="ID[-ID],...",
        help="Further ids to leave alone (1-99: [unused] entries).",
    ),
    click.option("--never-draw", type=_Ids(), metavar="ID[-ID],...", help="Ids that are no random replacement."),
    click.option(
        "--replacement",
        type=click.Choice(["uniform", "frequency"]),
        default="uniform",
        show_default=True,
        help="How random tokens are drawn: all alike, or by how often they stand in the packed rows.",
    ),
)
mask_options = _all_of(
    rule_options,
    click.option(
        "--copies", type=click.IntRange(1, 1000), default=1, show_default=True, help="Maskings of the whole data set."
    ),
    click.option(
        "--labels",
        type=click.Choice(["dense", "sparse"]),
        default="dense",
        show_default=True,
        help="Store each copy's rows and labels whole, or the packed rows once and of each copy the selected positions only.",
    ),
)


def build_mask_options(values: dict[str, Any]) -> MaskOptions:
    from clozeline.masking.mask import MaskOptions

    return MaskOptions(
        seed=values["seed"],
        copies=values["copies"],
        rule=build_mask_rule(values),
        allow_lower_rate=values["allow_lower_rate"],
        labels=values["labels"],
    )


def build_mask_rule(values: dict[str, Any]) -> MaskRule:
    from clozeline.mask_function import MaskRule

    names = [f.name for f in fields(MaskRule)]
    return MaskRule(**{name: values[name] for name in names if values[name] is not None})
