"""Ways to shard a corpus and to look at what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clozeline import ReadOptions, RunOptions, SelectOptions, ShardOptions, StageResult, shard
from clozeline.store.dataset import Data
from clozeline.store.documents import TextShard

SERIAL = RunOptions(executor="serial")


def documents_of(path: Path | str) -> list[tuple[str, str]]:
    """(doc_id, text) of a text data set, in order."""
    data = Data(path, "sharding")
    found = []
    for entry in data.manifest.shards:
        for _, _, stream in TextShard(location=data.location, entry=entry).read():
            for documents in stream:
                found += zip(documents.ids, (t.decode() for t in documents.texts), strict=True)
    return found


class Sharder:
    """Shards into a new folder each time; the ledger of every result must close."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def __call__(
        self,
        *sources: Path | str,
        run: RunOptions = SERIAL,
        num_shards: int | None = None,
        select: SelectOptions | None = None,
        **read: Any,
    ) -> tuple[StageResult, list[tuple[str, str]]]:
        self.count += 1
        dest = self.folder / f"text{self.count}"
        options = ShardOptions(num_shards=num_shards, read=ReadOptions(**read), select=select or SelectOptions())
        result = shard(list(sources), dest, options, run)
        found = documents_of(dest)
        account = result.ledger["documents"]
        assert account["in"] + sum(account["added"].values()) == account["out"] + sum(account["dropped"].values())
        assert account["out"] == len(found) == result.rows
        assert len({doc_id for doc_id, _ in found}) == len(found)
        return result, found


def texts(found: list[tuple[str, str]]) -> list[str]:
    return [text for _, text in found]
