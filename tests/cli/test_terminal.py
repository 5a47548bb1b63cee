"""What a document or a file name holds is never obeyed by the terminal that it is printed on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from clozeline.cli.main import main
from clozeline.cli.report import printable

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x7f\u202e"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    return result.exit_code, result.output


def test_control_characters_are_spelled_out_and_text_is_left() -> None:
    assert printable("a\x1b[0m\tb\nc\x9b\u202eé中\U0001f600") == "a\\u001b[0m\tb\nc\\u009b\\u202eé中\U0001f600"
    assert json.loads(printable(json.dumps({"text": EVIL}, ensure_ascii=False))) == {"text": EVIL}


@pytest.mark.parametrize("form", ["text", "json"])
def test_documents_and_names_are_shown_without_effect(tmp_path: Path, form: str) -> None:
    folder = tmp_path / f"c{EVIL}"
    folder.mkdir()
    (folder / f"a{EVIL}.txt").write_text(f"document {EVIL} here\n")
    flags = ["--json"] if form == "json" else []
    said = [
        run("shard", folder, tmp_path / f"made{EVIL}", "--executor", "serial", *flags),
        run("show", tmp_path / f"made{EVIL}", "--rows", "1", *flags),
        run("shard", folder, tmp_path / f"made{EVIL}", *flags),
        run("show", tmp_path / f"no{EVIL}", *flags),
    ]
    assert [code for code, _ in said] == [0, 0, 2, 2]
    for _, output in said:
        assert not OBEYED.search(output), output
    assert "document \\u001b]0;owned\\u0007" in said[1][1]


def test_errors_quote_bad_input_without_effect(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({f"key{EVIL}": "x"}) + "\n")
    code, output = run("shard", path, tmp_path / "made", "--executor", "serial")
    assert (code, OBEYED.search(output)) == (2, None)
    config = tmp_path / "c.toml"
    config.write_text('[shard]\n"bad\\u001b]0;owned" = 1\n')
    code, output = run("shard", path, tmp_path / "made", "--config", config)
    assert (code, OBEYED.search(output)) == (2, None)
