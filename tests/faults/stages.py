"""The four ways to make a data set, over one small corpus, and how to look at what they made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import clozeline
from clozeline import MaskOptions, PackOptions, RunOptions, SelectOptions, ShardOptions
from clozeline.store.dataset import Data

SHARD = ShardOptions(num_shards=3, select=SelectOptions(seed=1, shuffle=True, deduplicate=True))
PACK = PackOptions(max_length=64)
MASK = MaskOptions(seed=1, copies=2)  # `run` has one seed for all
STAGES = ("shard", "pack", "mask", "prepare")


class Stages:
    """Makes each data set from finished ones before it.

    Args:
        folder: holds the corpus, and what each stage starts from.
    """

    def __init__(self, folder: Path, tokenizer: Path) -> None:
        self.folder, self.tokenizer = folder, tokenizer
        self.corpus = folder / "corpus.txt"
        lines = [
            f"document {i % 50} " + " ".join(f"word{(i * 7 + k) % 23}" for k in range(i % 9 * 3)) for i in range(90)
        ]
        self.corpus.write_text("\n".join(lines) + "\n")
        serial = RunOptions(executor="serial")
        for stage, name in (("shard", "text"), ("pack", "packed")):
            self.make(stage, folder / name, serial)
        self.clean = {}
        for stage in STAGES:
            self.make(stage, folder / f"clean-{stage}", serial)
            self.clean[stage] = files_of(folder / f"clean-{stage}")

    def make(self, stage: str, dest: Path, run: RunOptions) -> None:
        folder = self.folder
        {
            "shard": lambda: clozeline.shard(self.corpus, dest, SHARD, run),
            "pack": lambda: clozeline.pack(folder / "text", dest, self.tokenizer, PACK, run, engine="tokenizers"),
            "mask": lambda: clozeline.mask(folder / "packed", dest, MASK, run),
            "prepare": lambda: clozeline.prepare(
                self.corpus, dest, self.tokenizer, SHARD, PACK, MASK, run, engine="tokenizers"
            ),
        }[stage]()

    def command(self, stage: str, dest: Path) -> list[str]:
        """The same by the command line, with two worker processes."""
        shard = ["--num-shards", "3", "--shuffle", "--deduplicate", "--seed", "1"]
        pack = ["--tokenizer", str(self.tokenizer), "--max-length", "64", "--engine", "tokenizers"]
        mask = ["--copies", "2"]
        arguments = {
            "shard": ["shard", self.corpus, dest, *shard],
            "pack": ["pack", self.folder / "text", dest, *pack],
            "mask": ["mask", self.folder / "packed", dest, "--seed", "1", *mask],
            "prepare": ["run", self.corpus, dest, *shard, *pack, *mask],
        }[stage]
        return [*map(str, arguments), "-j", "2", "--executor", "processes", "-q"]

    def check(self, stage: str, dest: Path) -> None:
        """The data sets are those of a clean run, and nothing else lies about."""
        assert files_of(dest) == self.clean[stage]


def files_of(path: Path) -> dict[str, bytes]:
    """Every file but what is told of the run, empty folders too."""
    found: dict[str, Any] = {}
    for p in sorted(path.rglob("*")):
        if p.name != "run.json":
            found[str(p.relative_to(path))] = p.read_bytes() if p.is_file() else None
    return found


def finished(path: Path) -> list[Path]:
    return [p.parent for p in path.rglob("manifest.json")]


def refuse_or_be_whole(path: Path, whole: dict[str, bytes]) -> None:
    """What stands under a final name is complete, and a data set is there with its manifest or not at all."""
    for name, content in files_of(path).items():
        if ".clozeline" not in name and content is not None:
            assert whole[name] == content, name
    for place in finished(path):
        data = Data(place)
        assert all((place / entry.file).stat().st_size == entry.bytes for entry in data.manifest.shards)


Make = Callable[[RunOptions], None]
