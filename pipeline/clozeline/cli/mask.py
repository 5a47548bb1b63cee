"""`clozeline mask`."""

from __future__ import annotations

from typing import Any

import click

from clozeline.cli.options.mask import build_mask_options, mask_options
from clozeline.cli.options.run import build_run_options, output_options, run_options, seed_option
from clozeline.cli.report import print_stage


@click.command("mask", epilog="Example: clozeline mask work/packed work/masked --seed 1 --copies 4")
@click.argument("packed", metavar="SOURCE")
@click.argument("dest")
@seed_option
@mask_options
@run_options
@output_options
def command(packed: str, dest: str, as_json: bool, quiet: bool, verbose: bool, **values: Any) -> None:
    """Packed rows to masked rows with labels.

    SOURCE is a folder that `clozeline pack` wrote. The seed is stored with the masks.
    """
    from clozeline.masking.mask import mask

    result = mask(packed, dest, build_mask_options(values), build_run_options(values, quiet, verbose))
    print_stage(result, as_json=as_json)
