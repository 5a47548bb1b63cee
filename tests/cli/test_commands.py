"""The commands as a person meets them: exit codes, messages, configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from clozeline.cli.main import main


def run(*args: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, [str(a) for a in args], env=env)


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and ".clozeline" not in p.parts)


@pytest.fixture
def packed(corpus: Path, tokenizer: Path, tmp_path: Path) -> Path:
    result = run("run", corpus, tmp_path / "o", "--tokenizer", tokenizer, "--max-length", 32, "--dynamic", "-j", 1)
    assert result.exit_code == 0, result.output
    return tmp_path / "o" / "packed"


def test_three_commands_do_what_run_does(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    steps: list[tuple[object, ...]] = [
        ("shard", corpus, tmp_path / "text", "--num-shards", 3),
        ("pack", tmp_path / "text", tmp_path / "packed", "--tokenizer", tokenizer, "--max-length", 32),
        ("mask", tmp_path / "packed", tmp_path / "masked", "--seed", 5, "--selection", "exact"),
    ]
    for step in steps:
        result = run(*step, "-j", 1, "--json")
        assert result.exit_code == 0, result.output
        last = json.loads(result.stdout)
        assert last["path"] == str(step[2])
    arguments = ("--num-shards", 3, "--tokenizer", tokenizer, "--max-length", 32, "--seed", 5, "--selection", "exact")
    result = run("run", corpus, tmp_path / "o", *arguments, "-j", 1, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["masked"]["sha256"] == last["sha256"]


def test_people_read_the_ledger(corpus: Path, tmp_path: Path) -> None:
    with corpus.open("a") as file:
        file.write("\n\n")
    result = run("shard", corpus, tmp_path / "text")
    assert result.exit_code == 0
    assert "documents: 42 in - 2 blank = 40 out" in result.stdout


BAD_INPUT = [
    (["shard", "missing.txt", "o"], "missing.txt: no such file"),
    (["shard", "empty.txt", "o"], "no documents"),
    (["shard", "blank.txt", "o"], "no documents (3 blank)"),
    (["shard", "latin1.txt", "o"], "latin1.txt: line 2, byte 9: not UTF-8 (byte 0xe9)"),
    (["shard", "null.jsonl", "o"], "null.jsonl: line 2, byte 14: 'text' is null, not text"),
    (["shard", "folder.txt", "o", "--documents", "sentences"], "use lines, blank-lines, files"),
    (["shard", ".", "o"], "lies inside SOURCE"),
    (["shard", "good.txt", "taken"], "is not empty (mine.txt) and is not a clozeline data set"),
    (["shard", "good.txt", "taken", "--force"], "is not empty (mine.txt) and is not a clozeline data set"),
    (["pack", "missing", "o", "--tokenizer", "TOKENIZER"], "missing: no manifest.json here; there is no such folder"),
    (["run", "good.txt", "o", "--tokenizer", "./nowhere"], "./nowhere: no such tokenizer"),
    (["run", "good.txt", "o", "--tokenizer", "maskless"], "maskless: has no mask token"),
    (["run", "good.txt", "o", "--tokenizer", "TOKENIZER", "--mask-token-prob", "0.95"], "must not sum to more than 1"),
    (["run", "good.txt", "o", "--tokenizer", "TOKENIZER", "--config", "bad.toml"], "unknown key 'sead' in [mask]"),
    (["run", "good.txt", "o", "--tokenizer", "TOKENIZER", "--config", "section.toml"], "unknown section [masks]"),
    (["run", "good.txt", "o", "--tokenizer", "TOKENIZER", "--config", "broken.toml"], "cannot be read as TOML"),
    (["run", "good.txt", "o", "--tokenizer", "TOKENIZER", "--config", "two.toml"], "set it in [run]"),
    (["run", "blank.txt", "o", "--tokenizer", "TOKENIZER"], "no row can be made of its 3 documents (dropped: 3 blank)"),
    (["run", "good.txt", "o", "--tokenizer", "TOKENIZER", "--mask-prob", "0.3,0.15"], "copies is 1"),
    (["mask", "o", "p", "--resume", "--force"], "contradict each other"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_INPUT, ids=[m for _, m in BAD_INPUT])
def test_bad_input_is_one_message_and_exit_code_2(
    arguments: list[str], message: str, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.txt").write_text("one document\n")
    Path("folder.txt").write_text("one document\n")
    Path("empty.txt").touch()
    Path("blank.txt").write_text("\n \n\t\n")
    Path("latin1.txt").write_bytes("plain\ncaf\xe9\n".encode("latin-1"))
    Path("null.jsonl").write_text('{"text": "a"}\n{"text": null}\n')
    Path("taken").mkdir()
    Path("taken/mine.txt").write_text("mine")
    Path("bad.toml").write_text("[mask]\nsead = 1\n")
    Path("section.toml").write_text("[masks]\nseed = 1\n")
    Path("broken.toml").write_text("[mask\n")
    Path("two.toml").write_text("[mask]\nseed = 1\n[shard]\nseed = 2\n")
    maskless = json.loads((tokenizer / "tokenizer.json").read_text().replace("[MASK]", "[GAP]"))
    Path("maskless").mkdir()
    Path("maskless/tokenizer.json").write_text(json.dumps(maskless))
    before = files_below(tmp_path)
    result = run(*(str(tokenizer) if a == "TOKENIZER" else a for a in arguments), "-j", 1)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert files_below(tmp_path) == before


def test_flag_beats_environment_beats_file_beats_default(packed: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[mask]\nseed = 7\nmask-prob = 0.2\n")

    def seed(*arguments: object, env: dict[str, str] | None = None) -> int:
        result = run("mask", packed, tmp_path / "m", "--force", "--json", *arguments, env=env)
        assert result.exit_code == 0, result.output
        value: int = json.loads(result.stdout)["seed"]
        return value

    environment = {"CLOZELINE_MASK_SEED": "8"}
    assert seed() == 0
    assert seed("--config", config) == 7
    assert seed("--config", config, env=environment) == 8
    assert seed("--config", config, "--seed", 9, env=environment) == 9
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    assert manifest["config"]["mask_prob"] == 0.2


def test_a_configuration_may_hold_sections_for_every_stage(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        f"[shard]\nnum_shards = 2\ndocuments = ['lines']\n[pack]\ntokenizer = '{tokenizer}'\nmax_length = 16\n"
        "[mask]\ncopies = 3\n[run]\nseed = 4\nkeep_text = true\n"
    )
    result = run("run", corpus, tmp_path / "o", "--config", config, "-j", 1, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["text"]["shards"], report["masked"]["shards"], report["masked"]["seed"]) == (2, 6, 4)


def test_a_closed_pipe_is_no_traceback(packed: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "clozeline", "mask", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate()
    assert b"Traceback" not in errors
