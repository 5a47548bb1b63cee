"""`clozeline pack`."""

from __future__ import annotations

from typing import Any

import click

from clozeline.cli.options.pack import build_pack_options, pack_options
from clozeline.cli.options.run import build_run_options, engine_option, output_options, run_options, seed_option
from clozeline.cli.report import print_stage


@click.command("pack", epilog="Example: clozeline pack work/text work/packed --tokenizer bert-base-uncased")
@click.argument("text", metavar="SOURCE")
@click.argument("dest")
@seed_option
@pack_options
@engine_option
@run_options
@output_options
def command(
    text: str, dest: str, tokenizer: str, engine: str, as_json: bool, quiet: bool, verbose: bool, **values: Any
) -> None:
    """Text shards to rows of token ids.

    SOURCE is a folder that `clozeline shard` wrote. --packing says how documents fill rows;
    the default is dense: documents end to end with a separator between them.
    """
    from clozeline.packing.pack import pack

    result = pack(
        text, dest, tokenizer, build_pack_options(values), build_run_options(values, quiet, verbose), engine=engine
    )
    print_stage(result, as_json=as_json)
