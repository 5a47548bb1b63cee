"""`clozeline vocab`."""

from __future__ import annotations

from typing import Any

import click

from clozeline.cli.options.run import output_options
from clozeline.cli.report import print_json


@click.command("vocab", epilog="Example: clozeline vocab work/text work/tokenizer --vocab-size 8000")
@click.argument("text", metavar="SOURCE")
@click.argument("dest")
@click.option(
    "--kind",
    type=click.Choice(["wordpiece", "bpe", "unigram"]),
    default="wordpiece",
    show_default=True,
    help="WordPiece (BERT), byte-level BPE (RoBERTa), or Unigram (XLM-R).",
)
@click.option(
    "--vocab-size",
    "vocabulary_size",
    type=click.IntRange(min=300),
    default=30_522,
    show_default=True,
    help="Tokens, special ones too.",
)
@click.option(
    "--lowercase/--cased", default=None, help="Lower-case and strip accents.  [default: lowercase for WordPiece only]"
)
@click.option(
    "--min-frequency",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How often a pair must occur to become a token.",
)
@click.option(
    "--alphabet",
    type=click.IntRange(min=26),
    help="Characters that become tokens of their own, the most frequent ones (WordPiece).  [default: 6000 or half of --vocab-size]",
)
@click.option(
    "--max-length",
    type=click.IntRange(8, 8192),
    default=512,
    show_default=True,
    help="Row length that the tokenizer is said to be for.",
)
@click.option("--force", is_flag=True, help="Replace the tokenizer in DEST.")
@output_options
def command(text: str, dest: str, force: bool, as_json: bool, quiet: bool, verbose: bool, **values: Any) -> None:
    """Train a tokenizer on text shards.

    SOURCE is a folder that `clozeline shard` wrote. DEST becomes a folder that transformers' AutoTokenizer loads.
    """
    from clozeline.vocabulary.train import VocabOptions, vocab

    result = vocab(text, dest, VocabOptions(**values), force=force)
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(
            f"{result.path}: {result.kind} tokenizer, {result.vocabulary_size:,} tokens, from {result.documents:,} documents"
        )
