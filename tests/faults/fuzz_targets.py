"""What is fuzzed: every reader of bytes that somebody else may have written. Anything but our own errors is a fault.

Each target takes a folder to work in and the bytes of one file; `seeds` gives it good files to begin from.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from clozeline import PackOptions, ReadOptions, RunOptions, ShardOptions, pack, shard
from clozeline.errors import ClozelineError
from clozeline.packing.tokenizer import load_tokenizer
from clozeline.sharding.files import InputFile, measure
from clozeline.sharding.read import FileReader
from clozeline.store.dataset import Data
from clozeline.store.documents import TextShard
from clozeline.store.ledger import Ledger

TOKENIZER = Path(__file__).parents[2] / "sample_data" / "tokenizer"
Target = Callable[[Path, bytes], None]


def _read(folder: Path, data: bytes, name: str, form: str, compression: str | None, **options: object) -> None:
    path = folder / name
    path.write_bytes(data)
    file = InputFile(name=name, path=str(path), format=form, compression=compression)
    for errors in ("strict", "skip", "replace"):
        read = ReadOptions(errors=errors, max_document_bytes=1024, **options)
        with contextlib.suppress(ClozelineError):
            measured = measure([file], 1, read)[0]
            reader, ledger, found = FileReader(measured, read), Ledger(), 0
            for start, stop in ((0, measured.bytes // 2), (measured.bytes // 2, measured.bytes)):
                for documents in reader.documents(start, stop, ledger):
                    found += len(documents.ids)
                    for text in documents.texts:
                        text.decode()
                        assert text
                        assert not text.isspace()
                        assert len(text) <= 1024
            ledger.check(name)
            assert ledger.documents.out == found


def text(folder: Path, data: bytes) -> None:
    for mode in ("lines", "blank-lines", "files", "wiki"):
        _read(folder, data, "a.txt", "text", None, documents=(mode,))


def encodings(folder: Path, data: bytes) -> None:
    for encoding in ("auto", "utf-16", "gb18030", "cp1252", "shift_jis", "utf-7"):
        _read(folder, data, "a.txt", "text", None, encoding=encoding)


def jsonl(folder: Path, data: bytes) -> None:
    _read(folder, data, "a.jsonl", "jsonl", None)


def csv(folder: Path, data: bytes) -> None:
    _read(folder, data, "a.csv", "csv", None)


def warc(folder: Path, data: bytes) -> None:
    _read(folder, data, "a.wet", "warc", None)


def compressed(folder: Path, data: bytes) -> None:
    for compression in ("gzip", "bz2", "xz", "zstd"):
        _read(folder, data, "a.txt", "text", compression)


def parquet(folder: Path, data: bytes) -> None:
    _read(folder, data, "a.parquet", "parquet", None)


def arrow(folder: Path, data: bytes) -> None:
    _read(folder, data, "a.arrow", "arrow", None)


def _open(folder: Path) -> None:
    with contextlib.suppress(ClozelineError):
        data = Data(folder)
        for index, entry in enumerate(data.manifest.shards):
            if data.metadata.stage == "sharding":
                for _, _, stream in TextShard(location=data.location, entry=entry).read():
                    for documents in stream:
                        b"".join(documents.texts)
            else:
                opened = data.shard(index)
                for name in opened.columns():
                    opened.take(name, np.arange(entry.rows)[::-1]).sum()
                for block in opened.batches():
                    for column in block.values():
                        column.sum()


def manifest(folder: Path, data: bytes) -> None:
    (folder / "manifest.json").write_bytes(data)
    _open(folder)


def _text_shard(folder: Path) -> Path:
    if not (folder / "made").exists():
        (folder / "a.txt").write_text("one two\nthree\n" * 20)
        shard(folder / "a.txt", folder / "made", ShardOptions(num_shards=1), RunOptions(executor="serial"))
    return folder / "made"


def _with_shard(folder: Path, data: bytes) -> None:
    """Puts the bytes in place of the first shard, and its new length into the manifest: only content can give it away."""
    body = json.loads((folder / "manifest.json").read_text())
    (folder / body["shards"][0]["file"]).write_bytes(data)
    body["shards"][0]["bytes"] = len(data)
    (folder / "manifest.json").write_text(json.dumps(body))
    _open(folder)


def text_shard(folder: Path, data: bytes) -> None:
    _with_shard(_text_shard(folder), data)


def _token_shard(folder: Path) -> Path:
    if not (folder / "packed").exists():
        serial = RunOptions(executor="serial")
        pack(_text_shard(folder), folder / "packed", TOKENIZER, PackOptions(max_length=16), serial, engine="tokenizers")
    return folder / "packed"


def token_shard(folder: Path, data: bytes) -> None:
    _with_shard(_token_shard(folder), data)


def configuration(folder: Path, data: bytes) -> None:
    from click.testing import CliRunner

    from clozeline.cli.main import main

    (folder / "c.toml").write_bytes(data)
    result = CliRunner().invoke(
        main, ["shard", str(folder / "nothing.txt"), str(folder / "d"), "--config", str(folder / "c.toml")]
    )
    assert result.exit_code == 2, result.exception
    assert isinstance(result.exception, SystemExit)


def tokenizer(folder: Path, data: bytes) -> None:
    place = folder / "tokenizer"
    place.mkdir(exist_ok=True)
    (place / "tokenizer.json").write_bytes(data)
    with contextlib.suppress(ClozelineError):
        load_tokenizer(place)


TARGETS: dict[str, Target] = {
    f.__name__: f
    for f in (
        text,
        encodings,
        jsonl,
        csv,
        warc,
        compressed,
        parquet,
        arrow,
        manifest,
        text_shard,
        token_shard,
        configuration,
        tokenizer,
    )
}


def seeds(name: str, folder: Path) -> list[bytes]:
    """Good files for a target."""
    lines = b"\xef\xbb\xbfone\r\n\r\ntwo\n \t\nthree \xc3\xa9 \xff\n" + b"word " * 300 + b"\n"
    wiki = b'<doc id="1">\nOne\n\ntext\n</doc>\n<doc id="2">\ntwo\n</doc>\n'
    rows = pa.table({"n": [1, 2, 3], "text": ["one", None, "three " * 300]})

    def written(write: Callable[[io.BytesIO], object]) -> bytes:
        sink = io.BytesIO()
        write(sink)
        return sink.getvalue()

    def ipc(opened: Callable[..., pa.ipc.RecordBatchStreamWriter]) -> bytes:
        sink = pa.BufferOutputStream()
        with opened(sink, rows.schema) as writer:
            writer.write_table(rows)
        return sink.getvalue().to_pybytes()

    def zstd() -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(lines)
        return sink.getvalue().to_pybytes()

    import bz2
    import lzma

    archive = b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 4\r\n\r\ntext\r\n\r\nWARC/1.0\r\nContent-Length: 0\r\n\r\n"
    made = _text_shard(folder)
    toml = b'[shard]\nseed = 3\ndocuments = ["lines", "files:*.txt"]\nheld_out = 0.5\n[run]\nworkers = 2\n[mask]\nmask_prob = 0.2\n'
    small = json.loads((TOKENIZER / "tokenizer.json").read_bytes())
    small["model"]["vocab"] = (
        dict(list(small["model"]["vocab"].items())[:60]) if isinstance(small["model"]["vocab"], dict) else []
    )
    return {
        "text": [lines, wiki],
        "encodings": [lines, "Straße Все счастливые".encode("utf-16"), "Straße".encode("cp1252") * 9],
        "jsonl": [
            b'{"text": "one", "n": [1, {"a": null}]}\n{"text": "\\ud83d\\ude00"}\n\n{"text": "' + b"x" * 3000 + b'"}\n'
        ],
        "csv": [b'n,text\r\n1,"two\nlines, ""quoted"""\r\n2,' + b"x" * 2000 + b"\n3,\xff\n"],
        "warc": [archive],
        "compressed": [
            gzip.compress(lines),
            bz2.compress(lines),
            lzma.compress(lines),
            zstd(),
            gzip.compress(lines) * 2,
        ],
        "parquet": [written(lambda sink: pyarrow.parquet.write_table(rows, sink))],
        "arrow": [ipc(pa.ipc.new_file), ipc(pa.ipc.new_stream)],
        "manifest": [(made / "manifest.json").read_bytes()],
        "text_shard": [next(made.glob("*.arrow")).read_bytes()],
        "token_shard": [next(_token_shard(folder).glob("*.arrow")).read_bytes()],
        "configuration": [toml],
        "tokenizer": [json.dumps(small).encode()],
    }[name]
