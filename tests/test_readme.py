"""The README says what happens: its commands and its Python are run, and print what it shows ("..." for anything)."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def session() -> list[tuple[str, str]]:
    """(command, output) of the console blocks, in order."""
    steps: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for line in block.splitlines(keepends=True):
            if line.startswith("$ "):
                steps.append((line[2:].strip(), []))
            else:
                steps[-1][1].append(line)
    return [(command, "".join(output)) for command, output in steps]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a checkout to the commands."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "sample_data").symlink_to(ROOT / "sample_data")
    return folder


def test_the_session_and_the_python_are_what_runs(place: Path) -> None:
    steps = session()
    assert len(steps) >= 6
    environment = {**os.environ, "COLUMNS": "200"}
    for command, expected in steps:
        program, *arguments = shlex.split(command)
        assert program == "clozeline"
        done = subprocess.run(
            [sys.executable, "-m", "clozeline", *arguments],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(expected, done.stdout, flags), f"{command}\n{done.stdout}"
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    code = "".join(blocks) + "\nassert batch['labels'].shape == (32, 512), batch['labels'].shape\n"
    code += "row = rows[0]\nassert row['input_ids'].dtype == row['labels'].dtype == __import__('torch').int64\n"
    code = code.replace("import clozeline\n", "import clozeline\n", 1)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    parts = [place / "work" / "session" / name for name in ("masked", "masked2", "packed", "packed2")]
    manifests = [(part / "manifest.json").read_bytes() for part in parts]
    assert manifests[0] == manifests[1]
    assert manifests[2] == manifests[3]


def test_every_page_that_is_linked_exists() -> None:
    pages = re.findall(r"\]\(([\w/.]+)\)", README)
    missing = [page for page in pages if not (ROOT / page).exists()]
    assert not missing
