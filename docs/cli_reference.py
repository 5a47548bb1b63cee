"""Writes docs/cli.md from the commands' own help: `python docs/cli_reference.py`; a test checks that it is up to date."""

from __future__ import annotations

from pathlib import Path

import click

from clozeline.cli.main import COMMANDS, main

PAGE = Path(__file__).parent / "cli.md"
INTRODUCTION = """# Command line

Generated from the commands' help by `docs/cli_reference.py`.

Results go to stdout, everything else to stderr; `--json` prints one JSON object. A flag beats the environment
(`CLOZELINE_MASK_SEED=7`), which beats the file given with `--config`, which beats the default.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the check says no (`verify`, `evaluate --max-loss`) |
| 2 | could not run: options, input, or the machine; one message says which |
| 130 | stopped by Ctrl-C; `--resume` finishes the work |
"""


def reference() -> str:
    parts = [INTRODUCTION]
    for name in (None, *COMMANDS):
        command: click.Command | None = main
        title = "clozeline"
        context = click.Context(
            main, info_name="clozeline", terminal_width=100, **{**main.context_settings, "max_content_width": 100}
        )
        if name is not None:
            command = main.get_command(context, name)
            title = f"clozeline {name}"
            assert command is not None
            context = click.Context(command, parent=context, info_name=name, terminal_width=100, max_content_width=100)
        assert command is not None
        parts.append(f"## {title}\n\n```\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(reference())
