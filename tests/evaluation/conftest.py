"""A small data set, packed and masked twice, that models of 32 positions fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import LENGTH, tiny_model

import clozeline

SEED = 7
torch.set_num_threads(1)  # tiny matrices gain nothing from more, and lose much on a busy machine


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    """`packed` and `masked` (two copies, seed 7) of some 60 rows of 32 positions with boundaries in 3 shards."""
    folder = tmp_path_factory.mktemp("prepared")
    lines = [
        f"document {i} and " + " ".join(f"the word{(i * 7 + k) % 23}" for k in range(i % 9 * 3)) for i in range(24)
    ]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n")
    clozeline.prepare(
        folder / "corpus.txt",
        folder,
        tokenizer,
        clozeline.ShardOptions(num_shards=3),
        clozeline.PackOptions(max_length=LENGTH, boundaries=True),
        clozeline.MaskOptions(seed=SEED, copies=2),
        clozeline.RunOptions(executor="serial"),
    )
    return folder


@pytest.fixture(scope="session")
def vocabulary_size(prepared: Path) -> int:
    from clozeline.store.dataset import Data

    facts = Data(prepared / "packed").metadata.tokenizer
    assert facts is not None
    return facts.vocabulary_size


@pytest.fixture(scope="session")
def bert(vocabulary_size: int) -> Any:
    return tiny_model("bert", vocabulary_size)


@pytest.fixture(scope="session")
def bert_folder(bert: Any, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as users have it: saved, with its tokenizer beside it."""
    folder = tmp_path_factory.mktemp("bert")
    bert.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tokenizer / name).read_bytes())
    return folder
