"""How work is run and what is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from clozeline.cli.options.config import config_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from clozeline.run.stage import RunOptions

    Command = TypeVar("Command", bound=Callable[..., Any])


def all_of(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


output_options = all_of(
    click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of text."),
    click.option("-q", "--quiet", is_flag=True, help="No progress, no warnings."),
    click.option("-v", "--verbose", is_flag=True, help="Tell of each finished shard."),
    config_option,
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    default=0,
    show_default=True,
    help="Of everything drawn at random; recorded.",
)
workers_option = click.option(
    "-j", "--workers", type=click.IntRange(min=1), help="Workers, at most.  [default: usable cores]"
)
engine_option = click.option(
    "--engine",
    type=click.Choice(["auto", "fast", "tokenizers"]),
    default="auto",
    show_default=True,
    help="Tokenizer engine; the same ids from each.",
)
run_options = all_of(
    workers_option,
    click.option(
        "--executor",
        type=click.Choice(["auto", "processes", "serial", "dask"]),
        default="auto",
        show_default=True,
        help="Where the work is done; never changes a byte. auto: in worker processes if there is enough to do for them.",
    ),
    click.option("--dask-address", metavar="URL", help="Scheduler of a running dask cluster (tcp://10.0.0.1:8786)."),
    click.option("--dask-scheduler-file", metavar="FILE", help="The same by the file that `dask scheduler` writes."),
    click.option("--profile", is_flag=True, help="Tell where the time went: seconds and MB/s of input by section."),
    click.option(
        "--task-timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="End a job that takes longer and try it once more; in worker processes of our own only.  [default: none]",
    ),
    click.option("--resume", is_flag=True, help="Finish what an earlier run of the same work has left in DEST."),
    click.option("--force", is_flag=True, help="Replace what is in DEST."),
)


def build_run_options(values: dict[str, Any], quiet: bool, verbose: bool) -> RunOptions:
    from clozeline.cli.report import print_profile, progress, warn
    from clozeline.run.stage import RunOptions

    return RunOptions(
        workers=values["workers"],
        executor=values["executor"],
        dask_address=values["dask_address"],
        dask_scheduler_file=values["dask_scheduler_file"],
        resume=values["resume"],
        force=values["force"],
        task_timeout=values["task_timeout"],
        on_progress=None if quiet else progress(verbose=verbose),
        on_warning=None if quiet else warn,
        on_profile=print_profile if values["profile"] else None,
    )
