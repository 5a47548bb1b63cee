"""`clozeline run`."""

from __future__ import annotations

from typing import Any

import click

from clozeline.cli.options.mask import build_mask_options, mask_options
from clozeline.cli.options.pack import build_pack_options, pack_options
from clozeline.cli.options.run import build_run_options, engine_option, output_options, run_options, seed_option
from clozeline.cli.options.shard import build_shard_options, shard_options
from clozeline.cli.report import describe, print_json, printable


@click.command(
    "run", epilog="Example: clozeline run corpus.txt OUT --tokenizer bert-base-uncased --static --seed 1 -j 2"
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("dest")
@click.option(
    "--static/--dynamic",
    default=True,
    show_default=True,
    help="Write masked rows too, or packed rows only, to be masked on the fly.",
)
@click.option("--keep-text", is_flag=True, help="Write the text shards too.")
@seed_option
@shard_options
@pack_options
@mask_options
@engine_option
@run_options
@output_options
def command(
    sources: tuple[str, ...],
    dest: str,
    static: bool,
    keep_text: bool,
    tokenizer: str,
    engine: str,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **values: Any,
) -> None:
    """Raw text to packed and masked rows in one go.

    Writes DEST/packed, DEST/masked with --static, and DEST/text with --keep-text: the same bytes that shard, pack and
    mask write one after another.
    """
    from clozeline.preparation import prepare

    result = prepare(
        sources,
        dest,
        tokenizer,
        build_shard_options(values),
        build_pack_options(values),
        build_mask_options(values),
        build_run_options(values, quiet, verbose),
        static=static,
        keep_text=keep_text,
        engine=engine,
    )
    if as_json:
        print_json(result.to_json())
    else:
        stages = (result.text, result.packed, result.masked)
        click.echo(printable("\n".join(describe(r) for r in stages if r is not None)))
