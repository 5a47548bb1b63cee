"""How text becomes rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from clozeline.cli.options.run import all_of

if TYPE_CHECKING:
    from clozeline.packing.options import PackOptions


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


pack_options = all_of(
    click.option(
        "--tokenizer",
        required=True,
        help="Folder with tokenizer.json, that file, the URL of either, or a name on the hub.",
    ),
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
