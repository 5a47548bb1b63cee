"""`clozeline verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from clozeline.cli.main import EXIT_NO
from clozeline.cli.options import output_options, workers_option
from clozeline.cli.report import print_json, progress, warn

if TYPE_CHECKING:
    from clozeline.verification.findings import VerifyResult


@click.command("verify", epilog="Example: clozeline verify work/masked --against work/packed")
@click.argument("data", metavar="DIR")
@click.option(
    "--against", metavar="PACKED", help="The packed data set that DIR was masked from: compare unmasked rows."
)
@click.option("--digests/--no-digests", default=True, show_default=True, help="Recompute the sha256 of every file.")
@workers_option
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    data: str,
    against: str | None,
    digests: bool,
    workers: int | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Check a data set against its own account.

    DIR is what shard, pack or mask wrote. Exit code 0 when everything holds, 1 when something is wrong, 2 when it could not
    be checked.
    """
    from clozeline.run.stage import RunOptions
    from clozeline.verification.verify import verify

    run = RunOptions(
        workers=workers,
        on_progress=None if quiet else progress(verbose=verbose),
        on_warning=None if quiet else warn,
    )
    result = verify(data, against=against, digests=digests, run=run)
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(describe(result))
    if not result.ok:
        ctx.exit(EXIT_NO)


def describe(result: VerifyResult) -> str:
    """The verdict and every check, for people."""
    verdict = "holds" if result.ok else "IS WRONG"
    lines = [f"{result.path}: {verdict} ({result.stage}, {result.rows:,} rows, {result.bytes:,} bytes)"]
    width = max(len(check.name) for check in result.checks)
    for check in result.checks:
        lines.append(f"  {'ok   ' if check.ok else 'WRONG'} {check.name:{width}}  {check.detail}")
        lines += [f"        {problem}" for problem in check.problems]
        if check.count > len(check.problems):
            lines.append(f"        {check.count:,} such in all")
    return "\n".join(lines)
