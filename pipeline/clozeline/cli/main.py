"""The `clozeline` command: a group of commands, one file each, loaded only when it is called."""

from __future__ import annotations

import importlib
from typing import Any

import click

from clozeline.errors import ClozelineError, Interrupted

COMMANDS = {  # in the order of the data
    "run": "Raw text to packed and masked rows in one go.",
    "shard": "Raw text to text shards.",
    "vocab": "Train a tokenizer on text shards.",
    "pack": "Text shards to rows of token ids.",
    "mask": "Packed rows to masked rows with labels.",
    "stream": "Measure how fast a data set streams.",
    "evaluate": "A model's loss on masked tokens.",
    "verify": "Check a data set against its own account.",
    "show": "Describe a data set and print some of its rows.",
}
EXIT_NO = 1  # the check says no
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


class _Error(click.ClickException):
    exit_code = EXIT_ERROR

    def show(self, file: Any = None) -> None:
        from clozeline.cli.report import printable

        click.echo(printable(f"clozeline: error: {self.message}"), err=True)


class Commands(click.Group):
    """Loads `clozeline.cli.<name>` on demand and turns our errors into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"clozeline.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Interrupted as error:
            click.echo(f"clozeline: {error}", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except KeyboardInterrupt:
            click.echo("clozeline: stopped at once; what is done is kept: --resume finishes it", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except ClozelineError as error:
            raise _Error(str(error)) from error
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            place = f"{error.filename}: " if error.filename else ""
            raise _Error(f"{place}{error.strerror or error}") from error


@click.command(
    cls=Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "CLOZELINE",
        "max_content_width": 110,
    },
    epilog="Example: clozeline run corpus.txt OUT --tokenizer bert-base-uncased --seed 1",
)
@click.version_option(package_name="clozeline")
def main() -> None:
    """Prepares text for masked-language-model pretraining.

    Raw text becomes text shards (shard), rows of token ids (pack), and rows with static masks (mask); or all of it in
    one go (run). Results go to stdout, everything else to stderr.
    """


if __name__ == "__main__":
    main()
