"""How input is read, selected and divided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from clozeline.cli.options.run import all_of

if TYPE_CHECKING:
    from clozeline.sharding.shard import ShardOptions

shard_options = all_of(
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
