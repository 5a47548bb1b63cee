"""Packs small documents for real and reads back what is in the rows, with what says where it comes from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

import clozeline
from clozeline.packing.engines import Engine
from clozeline.packing.reading import read_tokens
from clozeline.packing.tokenizer import load_tokenizer
from clozeline.store.dataset import Data
from clozeline.store.documents import Documents
from clozeline.store.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from clozeline.packing.options import PackOptions

SERIAL = clozeline.RunOptions(executor="serial", force=True)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row and the stretches in it."""

    shard: int
    number: int
    ids: list[int]
    columns: dict[str, Any]
    stretches: list[dict[str, Any]]


def write_text(folder: Path, texts: list[str], shards: int = 2) -> Path:
    """Text shards of these documents."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "corpus.jsonl"
    source.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    clozeline.shard(source, folder / "text", clozeline.ShardOptions(num_shards=shards), SERIAL)
    return folder / "text"


def read_rows(packed: Path) -> list[Row]:
    """All rows in order, with their provenance where there is one."""
    data = Data(packed)
    rows = []
    for index, entry in enumerate(data.manifest.shards):
        shard = data.shard(index)
        file = packed / "provenance" / entry.file.replace(".arrow", ".parquet")
        stretches: dict[int, list[dict[str, Any]]] = {}
        for stretch in pq.read_table(file).to_pylist() if file.exists() else []:
            assert stretch["shard"] == entry.shard
            stretches.setdefault(stretch["row"], []).append(stretch)
        for number in range(entry.rows):
            at = np.array([number])
            columns = {name: shard.take(name, at)[0] for name in shard.columns()}
            rows.append(
                Row(
                    shard=entry.shard,
                    number=number,
                    ids=columns["input_ids"].tolist(),
                    columns=columns,
                    stretches=stretches.get(number, []),
                )
            )
    return rows


def tokens_of(tokenizer: Path, texts: dict[str, str], options: PackOptions) -> dict[str, list[int]]:
    """The tokens of documents by id, from the reference engine."""
    engine = Engine(load_tokenizer(tokenizer), "tokenizers")
    found = {}
    for name, text in texts.items():
        ((tokens, _),) = read_tokens([Documents([name], [text.encode()])], engine, options, Ledger())
        found[name] = tokens.columns["input_ids"].tolist()
    return found


def texts_of(text: Path) -> dict[str, str]:
    """Documents of text shards by id, in order."""
    from clozeline.store.documents import TextShard

    data = Data(text)
    return {
        name: body.decode()
        for entry in data.manifest.shards
        for _, _, stream in TextShard(location=data.location, entry=entry).read()
        for documents in stream
        for name, body in zip(documents.ids, documents.texts, strict=True)
    }
