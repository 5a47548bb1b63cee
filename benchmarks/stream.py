"""Loaders side by side: 100,000 rows of 512 as int64 batches of 256 in the main process.

    python benchmarks/stream.py                     # results/stream.json and a table
    python benchmarks/stream.py --only ours --repeats 1

Each case is a process of its own with one torch thread. It runs through the data for about `SECONDS` after a short warm-up (page
cache warm, workers started) and reports thousand rows per second and the milliseconds from the request to the first batch. Cases
are named system, order, workers; "masked" is masked on the fly, by Hugging Face's collator for the peers. Every system keeps the
same ids in its own format, made on the first run in the scratch folder; peers that are not installed are left out.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness import Case, Subject, installed, main, scratch, script

ROWS, LENGTH, SHARDS, BATCH, VOCABULARY = 100_000, 512, 16, 256, 30_522
SPECIAL = (0, 1, 2, 3, 4)  # [PAD] [UNK] [CLS] [SEP] [MASK]
SECONDS = 3.0
FOLDER = scratch() / "stream"


# Data


def ids() -> np.ndarray:
    """uint16 (ROWS, LENGTH): [CLS], random ordinary ids, [SEP]."""
    path = FOLDER / "ids.u16"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        made = np.random.default_rng(0).integers(5, VOCABULARY, (ROWS, LENGTH), dtype=np.uint16)
        made[:, 0], made[:, -1] = 2, 3
        made.tofile(path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    return np.memmap(path, np.uint16, "r", shape=(ROWS, LENGTH))


def once(name: str, write: Callable[[Path], None]) -> Path:
    """A folder that is made on the first run."""
    path = FOLDER / name
    if not (path / "complete").exists():
        path.mkdir(parents=True, exist_ok=True)
        write(path)
        (path / "complete").touch()
    return path


def _write_packed(path: Path) -> None:
    from clozeline.store.ledger import Ledger
    from clozeline.store.location import Location
    from clozeline.store.manifest import NAME, Manifest, Metadata, TokenizerFacts
    from clozeline.store.schema import packed_columns, rows_per_batch
    from clozeline.store.shards import ShardWriter, shard_name

    facts = TokenizerFacts(
        sha256="0" * 64,
        vocabulary_sha256="0" * 64,
        vocabulary_size=VOCABULARY,
        mask_id=4,
        pad_id=0,
        unk_id=1,
        separator_id=3,
        prefix_ids=(2,),
        suffix_ids=(3,),
        pair_ids=(3,),
        special_ids=SPECIAL,
        ordinary_ranges=((5, VOCABULARY - 1),),
    )
    metadata = Metadata(
        stage="packing", config={"max_length": LENGTH}, upstream="0" * 64, row_length=LENGTH, tokenizer=facts
    )
    location, entries = Location(path), []
    edges = np.linspace(0, ROWS, SHARDS + 1).astype(int)
    for shard, (first, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        name = shard_name("packed", shard, SHARDS)
        with ShardWriter(location, name, packed_columns(metadata), metadata, copy=0, shard=shard) as writer:
            for row in range(first, end, rows_per_batch(LENGTH)):
                block = np.array(ids()[row : min(end, row + rows_per_batch(LENGTH))])
                writer.write(
                    {
                        "input_ids": block,
                        "attention_mask": np.ones(block.shape, np.uint8),
                        "num_tokens": np.full(len(block), LENGTH, np.uint16),
                    }
                )
        entries.append(writer.entry)
    location.write(NAME, Manifest(metadata=metadata, ledger=Ledger(), shards=tuple(entries)).to_file().encode())


def _write_lance(path: Path) -> None:
    import lance
    import pyarrow as pa

    flat = pa.array(np.array(ids()).reshape(-1))
    lance.write_dataset(pa.table({"input_ids": pa.FixedSizeListArray.from_arrays(flat, LENGTH)}), str(path / "data"))


def _write_mosaic(path: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(path / "data"), columns={"input_ids": f"ndarray:uint16:{LENGTH}"}) as writer:
        for row in np.array(ids()):
            writer.write({"input_ids": row})


# Systems: each gives batches, dicts with int64 input_ids (BATCH, LENGTH)

Batches = Iterable[dict[str, Any]]


def _collator() -> Callable[[list[Any]], Any]:
    from tokenizers import Tokenizer, models
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"token{i}" for i in range(VOCABULARY - 5))]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordPiece({t: i for i, t in enumerate(names)}, unk_token="[UNK]")),
        **dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), names, strict=False)),
    )
    return DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)


def _collate(masked: bool) -> Callable[[list[Any]], Any]:
    """Rows, as dicts of arrays or tensors, to a batch."""
    import torch

    collator = _collator() if masked else None

    def collate(rows: list[Any]) -> Any:
        if collator is not None:
            return collator([{"input_ids": torch.from_numpy(np.asarray(r["input_ids"], np.int64))} for r in rows])
        stacked = np.stack([np.asarray(r["input_ids"]) for r in rows])
        return {"input_ids": torch.from_numpy(stacked.astype(np.int64))}

    return collate


def memory_map(shuffle: bool, workers: int, masked: bool) -> Batches:
    """The limit: one gather from a memory map, widened; no loader at all."""
    import torch

    rows = np.random.default_rng(1).permutation(ROWS) if shuffle else np.arange(ROWS)

    class Epoch:
        def __iter__(self) -> Iterator[dict[str, Any]]:
            data = ids()
            for first in range(0, ROWS - BATCH + 1, BATCH):
                part = rows[first : first + BATCH] if shuffle else slice(first, first + BATCH)
                yield {"input_ids": torch.from_numpy(data[part].astype(np.int64))}

    return Epoch()


def clozeline_loader(shuffle: bool, workers: int, masked: bool, prefetch: int = 4, full_mask: bool = False) -> Batches:
    import clozeline

    stream = clozeline.TokenStream(
        once("packed", _write_packed),
        batch_size=BATCH,
        shuffle="global" if shuffle else None,
        transform=clozeline.Masking(seed=1) if masked else None,
        options=clozeline.StreamOptions(full_attention_mask=full_mask),
    )
    return clozeline.TokenLoader(stream, num_workers=workers, prefetch=prefetch)


def clozeline_no_thread(shuffle: bool, workers: int, masked: bool) -> Batches:
    return clozeline_loader(shuffle, workers, masked, prefetch=0)


def clozeline_all_columns(shuffle: bool, workers: int, masked: bool) -> Batches:
    return clozeline_loader(shuffle, workers, masked, prefetch=0, full_mask=True)


def datasets_map(shuffle: bool, workers: int, masked: bool) -> Batches:
    import datasets
    from torch.utils.data import DataLoader

    files = sorted(once("packed", _write_packed).glob("packed-*.arrow"))
    data = datasets.concatenate_datasets([datasets.Dataset.from_file(str(f)) for f in files])
    data = data.select_columns(["input_ids"]).with_format("numpy")
    return DataLoader(
        data,  # type: ignore[arg-type]
        batch_size=BATCH,
        shuffle=shuffle,
        num_workers=workers,
        drop_last=True,
        collate_fn=_collate(masked),
        persistent_workers=workers > 0,
    )


def lance_scan(shuffle: bool, workers: int, masked: bool) -> Batches:
    import lance
    import torch

    data = lance.dataset(str(once("lance", _write_lance) / "data"))

    class Epoch:
        def __iter__(self) -> Iterator[dict[str, Any]]:
            for batch in data.to_batches(batch_size=BATCH):
                values = batch.column(0).flatten().to_numpy(zero_copy_only=True).reshape(-1, LENGTH)
                yield {"input_ids": torch.from_numpy(values.astype(np.int64))}

    return Epoch()


def mosaic(shuffle: bool, workers: int, masked: bool) -> Batches:
    from torch.utils.data import DataLoader

    from streaming import StreamingDataset

    data = StreamingDataset(local=str(once("mosaic", _write_mosaic) / "data"), shuffle=shuffle, batch_size=BATCH)
    return DataLoader(data, batch_size=BATCH, num_workers=workers, drop_last=True, collate_fn=_collate(masked))


SYSTEMS = {
    "ours": clozeline_loader,
    "ours, no thread": clozeline_no_thread,
    "ours, no thread, with attention_mask": clozeline_all_columns,
    "memory map": memory_map,
    "datasets": datasets_map,
    "lance scan": lance_scan,
    "mosaic": mosaic,
}


def one_case(system: str, order: str, workers: int, masked: bool) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    batches = SYSTEMS[system](order == "shuffled", workers, masked)
    for number, batch in enumerate(batches):  # caches, imports, worker start-up
        assert batch["input_ids"].dtype == torch.int64
        assert tuple(batch["input_ids"].shape) == (BATCH, LENGTH)
        if number == 10:
            break
    rates, first = [], []
    started = time.perf_counter()
    while time.perf_counter() - started < SECONDS or len(rates) < 2:
        begun, rows = time.perf_counter(), 0
        for number, batch in enumerate(batches):
            if number == 0:
                first.append(time.perf_counter() - begun)
            rows += len(batch["input_ids"])
            if time.perf_counter() - begun > SECONDS:
                break
        rates.append(rows / (time.perf_counter() - begun))
    return {"thousand rows/s": round(float(np.median(rates)) / 1000, 2), "first batch ms": round(1000 * min(first), 2)}


def cases() -> tuple[Case, ...]:
    wanted = [
        ("ours, no thread", "sequential", 0, False),
        ("ours", "sequential", 0, False),
        ("ours", "sequential", 2, False),
        ("memory map", "sequential", 0, False),
        ("lance scan", "sequential", 0, False),
        ("datasets", "sequential", 0, False),
        ("datasets", "sequential", 2, False),
        ("mosaic", "sequential", 0, False),
        ("ours, no thread", "shuffled", 0, False),
        ("ours, no thread, with attention_mask", "shuffled", 0, False),
        ("ours", "shuffled", 2, False),
        ("memory map", "shuffled", 0, False),
        ("datasets", "shuffled", 0, False),
        ("datasets", "shuffled", 2, False),
        ("mosaic", "shuffled", 0, False),
        ("ours, no thread", "shuffled", 0, True),
        ("ours", "shuffled", 2, True),
        ("datasets", "shuffled", 0, True),
        ("datasets", "shuffled", 2, True),
    ]
    needs = {"lance scan": "lance", "mosaic": "streaming"}
    there = {system: installed(module) for system, module in needs.items()}
    roles = {"memory map": "floor"}
    return tuple(
        Case(
            name=f"{system}; {order}, {workers} workers{', masked' if masked else ''}",
            argv=script(Path(__file__), "--case", system, order, str(workers), str(int(masked))),
            role="ours" if system.startswith("ours") else roles.get(system, "peer"),
        )
        for system, order, workers, masked in wanted
        if there.get(system, True)
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        name, order, workers, masked = sys.argv[2:6]
        print(json.dumps(one_case(name, order, int(workers), masked == "1")))
    else:
        ids()
        once("packed", _write_packed)
        title = f"{ROWS:,} rows of {LENGTH} as int64 batches of {BATCH} in the main process"
        main(Subject(name="stream", title=title, cases=cases()))
