"""Loaders side by side: 100,000 rows of 512 as int64 batches of 256 in the main process.

    python benchmarks/stream.py                     # results/stream.json and a table
    python benchmarks/stream.py --only ours --repeats 1

Each case is a process of its own with one torch thread. It runs through the data for about `SECONDS` after a short warm-up (page
cache warm, imports done) and reports thousand rows per second of a whole epoch, the wait for its first batch included (median of
the passes; one that is cut off goes on at the rate that it had after its first batch), and the least milliseconds from the
request to the first batch. Cases are named system, order, workers; "masked" is masked on the fly, by Hugging Face's collator for
the peers. Every system keeps the same ids in its own format, 16 shards where it has shards, made on the first run in the scratch
folder, and is read in the way that was the fastest of those tried for whole batches. Peers that are not installed are left out:

    pip install datasets pylance litdata webdataset grain mosaicml-streaming
"""

from __future__ import annotations

import json
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import pairwise
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
    write_packed(path, ids())


def write_packed(path: Path, rows: np.ndarray) -> None:
    """A packed data set of full rows, uint16 (R, L), in `SHARDS` shards."""
    from clozeline.store.ledger import Ledger
    from clozeline.store.location import Location
    from clozeline.store.manifest import NAME, Manifest, Metadata, TokenizerFacts
    from clozeline.store.schema import packed_columns, rows_per_batch
    from clozeline.store.shards import ShardWriter, shard_name

    length = rows.shape[1]
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
        stage="packing", config={"max_length": length}, upstream="0" * 64, row_length=length, tokenizer=facts
    )
    location, entries = Location(path), []
    with location.lock():
        for shard, (first, end) in enumerate(_spans(len(rows))):
            name = shard_name("packed", shard, SHARDS)
            with ShardWriter(location, name, packed_columns(metadata), metadata, copy=0, shard=shard) as writer:
                for row in range(first, end, rows_per_batch(length)):
                    block = np.array(rows[row : min(end, row + rows_per_batch(length))])
                    writer.write(
                        {
                            "input_ids": block,
                            "attention_mask": np.ones(block.shape, np.uint8),
                            "num_tokens": np.full(len(block), length, np.uint16),
                        }
                    )
            entries.append(writer.entry)
        location.write(NAME, Manifest(metadata=metadata, ledger=Ledger(), shards=tuple(entries)).to_file().encode())
        location.remove_work()


def _spans(rows: int = ROWS) -> list[tuple[int, int]]:
    """The rows of each shard: first and end."""
    edges = np.linspace(0, rows, SHARDS + 1).astype(int).tolist()
    return list(pairwise(edges))


def _write_lance(path: Path) -> None:
    import lance
    import pyarrow as pa

    flat = pa.array(np.array(ids()).reshape(-1))
    lance.write_dataset(pa.table({"input_ids": pa.FixedSizeListArray.from_arrays(flat, LENGTH)}), str(path / "data"))


def _mosaic_streaming() -> Any:
    """Mosaic's package, also where torchvision, which only its image data sets need, is not installed."""
    if not find_spec("torchvision"):
        sys.modules["streaming.vision"] = types.ModuleType("streaming.vision")
    import streaming

    return streaming


def _write_mosaic(path: Path) -> None:
    columns, limit = {"input_ids": f"ndarray:uint16:{LENGTH}"}, ROWS // SHARDS * (2 * LENGTH + 8)
    with _mosaic_streaming().MDSWriter(out=str(path / "data"), columns=columns, size_limit=limit) as writer:
        for row in np.array(ids()):
            writer.write({"input_ids": row})


def _span_rows(span: tuple[int, int]) -> Iterator[dict[str, np.ndarray]]:
    for row in range(*span):
        yield {"input_ids": np.array(ids()[row])}


def _write_litdata(path: Path) -> None:
    import litdata

    litdata.optimize(
        fn=_span_rows,
        inputs=_spans(),
        output_dir=str(path / "data"),
        num_workers=1,
        keep_data_ordered=True,
        chunk_size=ROWS // SHARDS,
    )


def _write_webdataset(path: Path) -> None:
    import webdataset

    for shard, (first, end) in enumerate(_spans()):
        with webdataset.TarWriter(str(path / f"{shard:05d}.tar")) as writer:
            for row in range(first, end):
                writer.write({"__key__": f"{row:08d}", "ids": ids()[row].tobytes()})


def _write_grain(path: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    for shard, (first, end) in enumerate(_spans()):
        writer = ArrayRecordWriter(str(path / f"{shard:05d}.array_record"), "group_size:1,uncompressed")
        for row in range(first, end):
            writer.write(ids()[row].tobytes())
        writer.close()


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


def datasets_iterable(shuffle: bool, workers: int, masked: bool) -> Batches:
    import datasets
    import torch
    from torch.utils.data import DataLoader

    files = sorted(once("packed", _write_packed).glob("packed-*.arrow"))
    data = datasets.concatenate_datasets([datasets.Dataset.from_file(str(f)) for f in files])
    rows = data.select_columns(["input_ids"]).to_iterable_dataset(num_shards=SHARDS)
    if shuffle:
        rows = rows.shuffle(seed=1, buffer_size=10_000)

    def widen(batch: dict[str, np.ndarray]) -> dict[str, Any]:
        return {"input_ids": torch.from_numpy(batch["input_ids"].astype(np.int64))}

    return DataLoader(
        rows.with_format("numpy").batch(BATCH, drop_last_batch=True),  # type: ignore[arg-type]
        batch_size=None,
        num_workers=workers,
        collate_fn=widen,
        persistent_workers=workers > 0,
    )


class Passes:
    """A loader that is made anew for every pass."""

    def __init__(self, make: Callable[[], Batches]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.make())


def lance_rows(shuffle: bool, workers: int, masked: bool) -> Batches:
    """A scan of whole batches; shuffled, one `take` of all rows of a batch."""
    import lance
    import torch

    data = lance.dataset(str(once("lance", _write_lance) / "data"))
    order = np.random.default_rng(1).permutation(ROWS)

    def taken() -> Iterator[Any]:
        for first in range(0, ROWS - BATCH + 1, BATCH):
            yield data.take(order[first : first + BATCH].tolist()).combine_chunks()

    def epoch() -> Iterator[dict[str, Any]]:
        for batch in taken() if shuffle else data.to_batches(batch_size=BATCH):
            column = batch.column(0)
            chunk = column.chunk(0) if shuffle else column
            values = chunk.flatten().to_numpy(zero_copy_only=True).reshape(-1, LENGTH)
            yield {"input_ids": torch.from_numpy(values.astype(np.int64))}

    return Passes(epoch)


def mosaic(shuffle: bool, workers: int, masked: bool) -> Batches:
    streaming = _mosaic_streaming()
    path = str(once("mosaic", _write_mosaic) / "data")
    streaming.base.util.clean_stale_shared_memory()
    data = streaming.StreamingDataset(local=path, shuffle=shuffle, batch_size=BATCH, num_canonical_nodes=1)
    return Passes(
        lambda: streaming.StreamingDataLoader(
            data, batch_size=BATCH, num_workers=workers, drop_last=True, collate_fn=_collate(masked)
        )
    )


def litdata_rows(shuffle: bool, workers: int, masked: bool) -> Batches:
    import litdata

    data = litdata.StreamingDataset(
        str(once("litdata", _write_litdata) / "data"), shuffle=shuffle, drop_last=False, seed=1
    )
    collate = _collate(masked)
    return Passes(
        lambda: litdata.StreamingDataLoader(
            data, batch_size=BATCH, num_workers=workers, drop_last=True, collate_fn=collate
        )
    )


def webdataset_rows(shuffle: bool, workers: int, masked: bool) -> Batches:
    """Batches made within the pipeline; shuffled: the shards, and rows in a buffer of 10,000."""
    import webdataset
    from torch.utils.data import DataLoader

    urls = sorted(map(str, once("webdataset", _write_webdataset).glob("*.tar")))
    collate = _collate(masked)

    def row(sample: dict[str, Any]) -> dict[str, np.ndarray]:
        return {"input_ids": np.frombuffer(sample["ids"], np.uint16)}

    def loader() -> Batches:
        rows = webdataset.WebDataset(urls, shardshuffle=SHARDS if shuffle else False, seed=1)
        if shuffle:
            rows = rows.shuffle(10_000)
        batches = rows.map(row).batched(BATCH, collation_fn=collate, partial=False)
        return DataLoader(batches, batch_size=None, num_workers=workers)

    return Passes(loader)


def _grain_row(record: bytes) -> np.ndarray:
    return np.frombuffer(record, np.uint16)


def _grain_batch(rows: Any) -> np.ndarray:
    return np.stack(rows).astype(np.int64)


def grain_rows(shuffle: bool, workers: int, masked: bool) -> Batches:
    import grain
    import torch
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["stream"])
    files = sorted(map(str, once("grain", _write_grain).glob("*.array_record")))

    def loader() -> Batches:
        rows = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(files))
        if shuffle:
            rows = rows.shuffle(seed=1)
        batches = rows.map(_grain_row).batch(BATCH, drop_remainder=True, batch_fn=_grain_batch)
        batches = batches.to_iter_dataset(
            grain.ReadOptions(num_threads=1, prefetch_buffer_size=500)
        )  # faster than its 16
        if workers:
            batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
        for batch in batches:
            yield {"input_ids": torch.from_numpy(batch)}

    return Passes(loader)


SYSTEMS = {
    "ours": clozeline_loader,
    "ours, no thread": clozeline_no_thread,
    "ours, no thread, with attention_mask": clozeline_all_columns,
    "memory map": memory_map,
    "datasets": datasets_map,
    "datasets iterable": datasets_iterable,
    "lance": lance_rows,
    "litdata": litdata_rows,
    "webdataset": webdataset_rows,
    "mosaic": mosaic,
    "grain": grain_rows,
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
    while time.perf_counter() - started < SECONDS or not rates:
        requested, rows = time.perf_counter(), 0
        for number, batch in enumerate(batches):
            now = time.perf_counter()
            if number == 0:
                begun = now
                first.append(begun - requested)
                continue
            rows += len(batch["input_ids"])
            if now - begun > SECONDS:
                break
        rates.append(ROWS / (first[-1] + (ROWS - BATCH) * (now - begun) / rows))
    return {"thousand rows/s": round(float(np.median(rates)) / 1000, 2), "first batch ms": round(1000 * min(first), 2)}


def cases() -> tuple[Case, ...]:
    plain = {  # system: numbers of workers
        "memory map": (0,),
        "lance": (0,),
        "litdata": (0, 2),
        "datasets": (0, 2),
        "datasets iterable": (0, 2),
        "grain": (0, 2),
        "webdataset": (0, 2),
        "mosaic": (0, 2),
    }
    masked = (("ours, no thread", 0), ("ours", 2), ("litdata", 0), ("litdata", 2), ("datasets", 0), ("datasets", 2))
    wanted = [
        ("ours, no thread", "sequential", 0, False),
        ("ours", "sequential", 0, False),
        ("ours", "sequential", 2, False),
        *((system, "sequential", n, False) for system, workers in plain.items() for n in workers),
        ("ours, no thread", "shuffled", 0, False),
        ("ours, no thread, with attention_mask", "shuffled", 0, False),
        ("ours", "shuffled", 2, False),
        *((system, "shuffled", n, False) for system, workers in plain.items() for n in workers),
        *((system, order, n, True) for order in ("sequential", "shuffled") for system, n in masked),
    ]
    needs = {
        "datasets": ("datasets",),
        "datasets iterable": ("datasets",),
        "lance": ("lance",),
        "litdata": ("litdata",),
        "webdataset": ("webdataset",),
        "mosaic": ("streaming",),
        "grain": ("grain", "array_record"),
    }
    there = {system: installed(*modules) for system, modules in needs.items()}
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
        main(Subject(name="stream", title=title, cases=cases()), repeats=1, warm_up=0)
