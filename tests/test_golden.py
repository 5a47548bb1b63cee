"""The rows made of `sample_data` never change by accident: their digests stand in golden.json.

A change that is meant says so in CHANGELOG.md, and the new digests are printed by `python tests/test_golden.py`.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

import clozeline
from clozeline.store.dataset import Data

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "sample_data"
GOLDEN = Path(__file__).parent / "golden.json"
READ = clozeline.ReadOptions(documents=("lines", "blank-lines:*.paragraphs.*"))
SERIAL = clozeline.RunOptions(executor="serial")


def rows_digest(folder: Path) -> str:
    """Of every column of every shard, in order, whatever version of Arrow has written them."""
    data, digest = Data(folder), hashlib.sha256()
    for index in range(len(data.manifest.shards)):
        for block in data.shard(index).batches():
            for name in sorted(block):
                digest.update(name.encode())
                digest.update(block[name].tobytes())
    return digest.hexdigest()


def make(place: Path) -> dict[str, str]:
    digests = {}

    def prepare(
        name: str, shard: clozeline.ShardOptions, pack: clozeline.PackOptions, mask: clozeline.MaskOptions
    ) -> None:
        clozeline.prepare(SAMPLE / "corpus", place / name, SAMPLE / "tokenizer", shard, pack, mask, SERIAL)
        for part in ("packed", "masked"):
            digests[f"{name}, {part}"] = rows_digest(place / name / part)

    plain = clozeline.ShardOptions(num_shards=4, read=READ)
    rows = clozeline.PackOptions(max_length=128)
    prepare("plain, bernoulli, 2 copies", plain, rows, clozeline.MaskOptions(seed=42, copies=2))
    exact = clozeline.MaskRule(selection="exact")
    prepare("plain, exact", plain, rows, clozeline.MaskOptions(seed=42, rule=exact))
    select = clozeline.SelectOptions(seed=7, shuffle=True, deduplicate=True, held_out=0.1)
    chosen = clozeline.ShardOptions(num_shards=3, read=READ, select=select)
    best = clozeline.PackOptions(max_length=64, packing="best-fit")
    prepare("shuffled, deduplicated, held out, best-fit", chosen, best, clozeline.MaskOptions(seed=1))
    return digests


def test_the_rows_of_the_sample_are_what_they_were(tmp_path: Path) -> None:
    assert make(tmp_path) == json.loads(GOLDEN.read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        GOLDEN.write_text(json.dumps(make(Path(folder)), indent=1) + "\n")
