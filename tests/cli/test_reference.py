"""docs/cli.md is what the commands say of themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click
import pytest

from clozeline.cli.main import COMMANDS, main

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("cli_reference", DOCS / "cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "cli.md").read_text() == module.reference(), "run: python docs/cli_reference.py"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_its_help_with_an_example_and_explains_every_option(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.epilog is not None
    assert command.epilog.startswith(f"Example: clozeline {name} ")
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, param.name
