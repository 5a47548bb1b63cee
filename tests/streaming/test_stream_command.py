"""`clozeline stream`: the figures of a pass, and a digest by which two machines can compare what they see."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from clozeline import TokenStream
from clozeline.cli.main import main


def run(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["stream", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.output


def test_the_figures_are_those_of_the_stream(masked: Path) -> None:
    found = run(masked, "--batch-size", 16, "--seed", 3, "--epoch", 2, "--json")
    rows = list(TokenStream(masked, seed=3, epoch=2))
    assert (found["rows"], found["batches"], found["epoch_batches"]) == (200, 13, 13)
    assert found["tokens"] == 200 * 12
    assert found["bytes"] == 200 * 12 * 8 * 3
    assert 0 < found["first_batch_seconds"] <= found["seconds"]
    digest = hashlib.sha256()
    for row in rows[:64]:
        for name in ("attention_mask", "input_ids", "labels"):
            digest.update(row[name].numpy().tobytes())
    assert found["digest"] == digest.hexdigest()


def test_the_digest_is_that_of_the_rows_alone(packed: Path, masked: Path) -> None:
    def digest(*arguments: object) -> str:
        return str(run(*arguments, "--json")["digest"])

    one = digest(masked, "--copy", 0, "--batch-size", 50)
    assert digest(masked, "--copy", 0, "--batch-size", 7, "-j", 2) == one
    assert digest(masked, "--copy", 0, "--batch-size", 1, "--prefetch", 0, "--limit-rows", 64) == one
    assert digest(masked, "--copy", 1, "--batch-size", 50) != one
    assert digest(masked, "--copy", 0, "--seed", 1) != one
    fly = ("--mask-on-the-fly", "--mask-prob", 0.4)
    static = digest(masked, "--copy", 0, "--seed", 11, "--batch-size", 50)
    assert digest(packed, "--seed", 11, *fly, "--batch-size", 50) == static, (
        "the seed of the order is that of the masks here"
    )


def test_text_names_rate_and_first_batch(packed: Path) -> None:
    text = run(packed, "--batch-size", 8, "--tail", "drop")
    assert "96 rows in 12 batches" in text
    assert "rows/s" in text
    assert "first batch after" in text
    assert "4 rows dropped" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--copy", "first"), "'first'"),
        (("--copy", "5"), "copy is 5"),
        (("--rank", "3", "--world-size", "2"), "rank is 3 of 2"),
        (("--mask-on-the-fly", "--mask-prob", "1.5"), "1.5"),
    ],
)
def test_bad_options_exit_with_2(packed: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in run(packed, *arguments, code=2)
