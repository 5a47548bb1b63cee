"""The table of docs/input.md is what `clozeline shard` says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_table_of_bad_input_is_what_the_command_says() -> None:
    spec = importlib.util.spec_from_file_location("input_table", DOCS / "input_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "input.md").read_text() == module.page(), "run: python docs/input_table.py"
