"""A small masked data set to verify, copied for each test that damages it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clozeline import MaskOptions, PackOptions, RunOptions, ShardOptions, prepare


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    """Three shards of rows of 32, packed, and masked twice."""
    place = tmp_path_factory.mktemp("prepared")
    lines = [f"document {i} " + " ".join(f"word{(i * 7 + k) % 23}" for k in range(i % 9 * 3)) for i in range(60)]
    (place / "corpus.txt").write_text("\n".join(lines) + "\n")
    prepare(
        place / "corpus.txt",
        place / "work",
        tokenizer,
        ShardOptions(num_shards=3),
        PackOptions(max_length=32),
        MaskOptions(seed=5, copies=2),
        RunOptions(executor="serial"),
        keep_text=True,
    )
    return place / "work"


@pytest.fixture
def work(prepared: Path, tmp_path: Path) -> Path:
    shutil.copytree(prepared, tmp_path / "work")
    return tmp_path / "work"
