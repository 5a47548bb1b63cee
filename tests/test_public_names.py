"""What `import clozeline` offers and what it costs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import clozeline

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", clozeline.__all__)
def test_every_public_name_exists_and_says_what_it_is(name: str) -> None:
    assert getattr(clozeline, name).__doc__


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'masks'"):
        clozeline.masks  # noqa: B018


def test_every_error_is_public_and_drawn_in_the_tree() -> None:
    import clozeline.errors as errors

    classes = {n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.ClozelineError)}
    assert classes <= set(clozeline.__all__)
    assert errors.__doc__ is not None
    assert all(name in errors.__doc__ for name in classes)


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert clozeline.__version__ == project["version"]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from clozeline.cli.main import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pyarrow', 'numpy', 'tokenizers', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_preparation_imports_neither_torch_nor_transformers(tmp_path: Path) -> None:
    code = (
        "import sys, clozeline\n"
        "clozeline.prepare(sys.argv[1], sys.argv[2], sys.argv[3], run=clozeline.RunOptions(executor='serial'))\n"
        "heavy = {'torch', 'transformers', 'datasets'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    sample = ROOT / "sample_data"
    arguments = [str(sample / "corpus" / "science.jsonl"), str(tmp_path / "o"), str(sample / "tokenizer")]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)
