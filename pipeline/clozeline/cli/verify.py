"""`clozeline verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from clozeline.cli.main import EXIT_NO
from clozeline.cli.options.mask import build_mask_rule, rule_options
from clozeline.cli.options.run import output_options, workers_option
from clozeline.cli.report import print_json, progress, warn
from clozeline.errors import ConfigError

if TYPE_CHECKING:
    from clozeline.mask_function import MaskRule
    from clozeline.run.stage import RunOptions
    from clozeline.verification.findings import VerifyResult


@click.command("verify", epilog="Example: clozeline verify work/masked --against work/packed")
@click.argument("data", metavar="DIR")
@click.option(
    "--against", metavar="PACKED", help="The packed data set that DIR was masked from: compare unmasked rows."
)
@click.option("--foreign", is_flag=True, help="DIR is a file or folder of Arrow or Parquet that another tool masked.")
@click.option("--tokenizer", help="Of foreign data: a folder with tokenizer.json, that file, or a name on the hub.")
@click.option("--html", metavar="FILE", help="Write a report that stands on its own (pip install 'clozeline[report]').")
@click.option("--digests/--no-digests", default=True, show_default=True, help="Recompute the sha256 of every file.")
@rule_options
@workers_option
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    data: str,
    against: str | None,
    foreign: bool,
    tokenizer: str | None,
    html: str | None,
    digests: bool,
    workers: int | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **values: Any,
) -> None:
    """Check a data set against its own account, and its masks against chance.

    DIR is what shard, pack or mask wrote; its scheme and seed are known. With --foreign the options from --selection on say
    what is expected; without any of them 15 % and 80/10/10 are. Exit code 0 when everything holds, 1 when something is wrong,
    2 when it could not be checked.
    """
    from clozeline.run.stage import RunOptions

    run = RunOptions(
        workers=workers,
        on_progress=None if quiet else progress(verbose=verbose),
        on_warning=None if quiet else warn,
    )
    given = [name for name in values if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if foreign:
        result = _verify_foreign(data, tokenizer, build_mask_rule(values) if given else None, html, run)
    else:
        if given or tokenizer:
            option = given[0] if given else "tokenizer"
            raise ConfigError(
                f"--{option.replace('_', '-')} is for --foreign data; this data set says itself how it was masked"
            )
        from clozeline.verification.verify import verify

        result = verify(data, against=against, digests=digests, html=html, run=run)
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(describe(result))
    if not result.ok:
        ctx.exit(EXIT_NO)


def _verify_foreign(
    data: str, tokenizer: str | None, rule: MaskRule | None, html: str | None, run: RunOptions
) -> VerifyResult:
    if tokenizer is None:
        raise ConfigError("--foreign data does not say what its ids mean: give --tokenizer")
    import json

    from clozeline.packing.tokenizer import load_tokenizer
    from clozeline.verification.foreign import verify_foreign

    loaded = load_tokenizer(tokenizer)
    model = json.loads(loaded.json)["model"].get("vocab")
    return verify_foreign(
        data, loaded.facts, rule, vocabulary=model if isinstance(model, dict) else None, html=html, run=run
    )


def describe(result: VerifyResult) -> str:
    """The verdict and every check, for people."""
    verdict = "holds" if result.ok else "IS WRONG"
    lines = [f"{result.path}: {verdict} ({result.stage}, {result.rows:,} rows, {result.bytes:,} bytes)"]
    if result.note:
        lines.append(f"  {result.note}")
    width = max(len(check.name) for check in result.checks)
    for check in result.checks:
        lines.append(f"  {'ok   ' if check.ok else 'WRONG'} {check.name:{width}}  {check.detail}")
        lines += [f"        {problem}" for problem in check.problems]
        if check.count > len(check.problems):
            lines.append(f"        {check.count:,} such in all")
    return "\n".join(lines)
