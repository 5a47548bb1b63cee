"""`clozeline shard`."""

from __future__ import annotations

from typing import Any

import click

from clozeline.cli.options.run import build_run_options, output_options, run_options, seed_option
from clozeline.cli.options.shard import build_shard_options, shard_options
from clozeline.cli.report import print_stage


@click.command("shard", epilog="Example: clozeline shard corpus/ more.jsonl.gz work/text --documents blank-lines -j 2")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("dest")
@seed_option
@shard_options
@run_options
@output_options
def command(sources: tuple[str, ...], dest: str, as_json: bool, quiet: bool, verbose: bool, **values: Any) -> None:
    """Raw text to text shards.

    SOURCE is a file, a folder, a glob, a URL of one of these, or hf:NAME[@SPLIT]: .txt .jsonl .csv .tsv .wet .parquet .arrow, the
    first five also as .gz .zst .bz2 .xz, and what WikiExtractor writes. A dash is text from standard input; stdin:jsonl.gz the same
    in another format.
    """
    from clozeline.sharding.shard import shard

    result = shard(sources, dest, build_shard_options(values), build_run_options(values, quiet, verbose))
    print_stage(result, as_json=as_json)
