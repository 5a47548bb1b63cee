"""`clozeline stream`."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click

from clozeline.cli.options.mask import build_mask_rule, rule_options
from clozeline.cli.options.run import output_options, seed_option
from clozeline.cli.report import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clozeline.streaming.measure import Measurement


class _Copy(click.ParamType):  # type: ignore[type-arg]
    """`all`, `epoch`, or the number of a copy."""

    name = "copy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        if value in ("all", "epoch") or isinstance(value, int):
            return value  # type: ignore[no-any-return]
        if not str(value).isdigit():
            self.fail(f"{value!r} is neither 'all' nor 'epoch' nor the number of a copy", param, ctx)
        return int(value)


@click.command("stream", epilog="Example: clozeline stream work/masked --batch-size 256 -j 2")
@click.argument("data", metavar="DIR")
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=256, show_default=True, help="Rows per batch and rank."
)
@click.option(
    "-j",
    "--workers",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Worker processes; 0 reads ahead on a thread.",
)
@click.option(
    "--shuffle",
    type=click.Choice(["global", "blocks", "lengths", "none"]),
    default="global",
    show_default=True,
    help="All rows at random; blocks of rows at random; at random with rows of one length in a batch; or as stored.",
)
@click.option("--epoch", type=click.IntRange(min=0), default=0, show_default=True, help="Which epoch to run through.")
@click.option("--copy", type=_Copy(), default="all", show_default=True, help="all, epoch, or a copy's number.")
@click.option("--mask-on-the-fly", is_flag=True, help="Mask packed rows, by --seed and the options of `mask`.")
@seed_option
@rule_options
@click.option("--tail", type=click.Choice(["drop", "even"]), default="even", show_default=True, help="The last rows.")
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, help="Measure as this rank,")
@click.option("--world-size", type=click.IntRange(min=1), default=1, show_default=True, help="of so many.")
@click.option("--prefetch", type=click.IntRange(min=0), default=4, show_default=True, help="Batches to read ahead.")
@click.option(
    "--check",
    type=click.Choice(["sizes", "digests"]),
    default="sizes",
    show_default=True,
    help="What of each shard is held against the manifest before its rows are given.",
)
@click.option("--limit-rows", type=click.IntRange(min=1), help="Stop after so many rows.  [default: a whole epoch]")
@output_options
def command(
    data: str,
    batch_size: int,
    workers: int,
    shuffle: str,
    epoch: int,
    copy: Any,
    mask_on_the_fly: bool,
    seed: int,
    tail: Any,
    rank: int,
    world_size: int,
    prefetch: int,
    check: Any,
    limit_rows: int | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **values: Any,
) -> None:
    """Measure how fast a data set streams.

    DIR is what pack or mask wrote. Runs through one epoch as a trainer would, and prints rates, the time to the first batch, and
    the digest of the first 64 rows, by which two machines can tell that they see the same rows in the same order.
    """
    from clozeline.masking.transform import Masking
    from clozeline.streaming.loader import TokenLoader
    from clozeline.streaming.measure import measure
    from clozeline.streaming.stream import StreamOptions, TokenStream

    stream = TokenStream(
        data,
        batch_size=batch_size,
        transform=Masking(seed=seed, rule=build_mask_rule(values)) if mask_on_the_fly else None,
        shuffle=None if shuffle == "none" else shuffle,  # type: ignore[arg-type]
        seed=seed,
        rank=rank,
        world_size=world_size,
        tail=tail,
        epoch=epoch,
        copy=copy,
        options=StreamOptions(identity=world_size > 1, check=check),
    )
    loader = TokenLoader(stream, num_workers=workers, prefetch=prefetch)
    total = min(limit_rows or sys.maxsize, len(stream) * batch_size)
    with _bar(total, show=not quiet) as on_batch:
        found = measure(loader, limit_rows=limit_rows, on_batch=on_batch)
    if as_json:
        print_json({"path": data, "epoch": epoch, **found.to_json()})
    else:
        click.echo(_describe(data, found))


def _describe(data: str, found: Measurement) -> str:
    tail = ""
    if found.dropped or found.padded:
        tail = f"; {found.dropped:,} rows dropped, {found.padded:,} padding rows"
    return (
        f"{data}: {found.rows:,} rows in {found.batches:,} batches, {found.seconds:.3f} s\n"
        f"  {found.rows_per_second:,.0f} rows/s, {found.bytes_per_second / 1e6:,.0f} MB/s, "
        f"first batch after {found.first_batch_seconds * 1000:.1f} ms\n"
        f"  an epoch is {found.epoch_batches:,} batches on each rank{tail}\n"
        f"  first rows {found.digest}"
    )


@contextlib.contextmanager
def _bar(total: int, *, show: bool) -> Iterator[Callable[[int], None] | None]:
    """A progress bar in rows, on a terminal."""
    if not show or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("stream"), BarColumn(), TextColumn("{task.completed:,.0f} rows"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("stream", total=total)
        yield lambda rows: progress.advance(task, rows)
