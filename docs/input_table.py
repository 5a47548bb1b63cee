"""Writes the table of docs/input.md by running `clozeline shard` on each kind of input: `python docs/input_table.py`.

A test checks that it is up to date.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from click.testing import CliRunner

from clozeline.cli.main import main

PAGE = Path(__file__).parent / "input.md"
BEGIN, END = "<!-- made by docs/input_table.py -->\n", "<!-- end -->\n"
Make = Callable[[Path], object]


def put(name: str, data: bytes | str) -> Make:
    return lambda folder: (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def table(name: str, columns: dict[str, pa.Array | list[object]], end: int | None = None) -> Make:
    def make(folder: Path) -> None:
        rows, path = pa.table(columns), folder / name
        if name.endswith("parquet"):
            pyarrow.parquet.write_table(rows, path)
        else:
            with pa.ipc.new_stream(path, rows.schema) as writer:
                writer.write_table(rows)
        path.write_bytes(path.read_bytes()[:end])

    return make


def sparse(folder: Path) -> None:
    with (folder / "a.txt").open("wb") as file:
        file.truncate(2**31)


def socket_file(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # the name of a socket is limited to 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("a.txt")
    finally:
        os.chdir(here)


def loop(folder: Path) -> None:
    put("a.txt", "one\n")(folder)
    (folder / "b").symlink_to(folder)


def two_links(folder: Path) -> None:
    put("a.txt", "one\n")(folder)
    (folder / "b.txt").symlink_to(folder / "a.txt")


GOOD = "one\ntwo\n"
LINES = b"some text here\n" * 200
PARAGRAPHS = ("--documents", "blank-lines")
WET = b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 4\r\n\r\ntext\r\n\r\n"
INVALID_NAME = os.fsdecode(b"caf\xe9.txt")

# What, how it is made, further options.
CASES: list[tuple[str, Make, tuple[str, ...]]] = [
    ("empty file", put("a.txt", ""), ()),
    ("nothing but blank lines", put("a.txt", "\n \t\n\r\n"), ()),
    ("blank lines between", put("a.txt", "one\n\n  \ntwo\n"), ()),
    ("50 million empty lines", put("a.txt", b"one" + b"\n" * 50_000_000 + b"two"), ("--documents", "blank-lines")),
    (
        "CRLF, and a byte order mark where files were joined",
        put("a.txt", b"\xef\xbb\xbfone\r\n\xef\xbb\xbftwo\r\n"),
        (),
    ),
    ("lone CR, VT, FF, FS, NEL, U+2028, U+2029", put("a.txt", "a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h\n"), ()),
    ("NUL characters", put("a.txt", "a\x00b\n\x00\n"), ()),
    ("2 GiB of NULs without a line feed (sparse)", sparse, ()),
    (
        "32 MiB of spaces behind a word",
        put("a.txt", b"one" + b" " * 2**25),
        ("--documents", "blank-lines", "--max-document-bytes", "1048576"),
    ),
    ("a line of 1 MB, limit 100 kB", put("a.txt", b"word " * 200_000), ("--max-document-bytes", "100000")),
    ("invalid UTF-8", put("a.txt", b"one\ntw\xffo\nthree\n"), ()),
    ("overlong UTF-8 (C0 80)", put("a.txt", b"one\n\xc0\x80\n"), ()),
    ("surrogates in UTF-8 (ED A0 80)", put("a.txt", b"one\n\xed\xa0\x80\n"), ()),
    ("Latin-1 taken for UTF-8", put("a.txt", "one\nStra\u00dfe\n".encode("latin-1")), ()),
    ("UTF-16 taken for UTF-8", put("a.txt", "one\n".encode("utf-16")), ()),
    ("0x81 in `--encoding cp1252`", put("a.txt", b"one\n\x81\n"), ("--encoding", "cp1252")),
    (
        "UTF-16 without its mark, `--encoding utf-16`",
        put("a.txt", "one\ntwo\n".encode("utf-16-be")[1:]),
        ("--encoding", "utf-16"),
    ),
    ("JSONL: null", put("a.jsonl", '{"text": null}\n{"text": "b"}\n'), ()),
    ("JSONL: a number", put("a.jsonl", '{"text": 3}\n{"text": "b"}\n'), ()),
    ("JSONL: the key is missing", put("a.jsonl", '{"body": "a"}\n{"text": "b"}\n'), ()),
    ("JSONL: empty text", put("a.jsonl", '{"text": ""}\n{"text": "b"}\n'), ()),
    ("JSONL: \\ud800", put("a.jsonl", '{"text": "\\ud800"}\n{"text": "b"}\n'), ()),
    ("JSONL: a line cut short", put("a.jsonl", '{"text": "b"}\n{"text": "a'), ()),
    ("JSONL: an array", put("a.jsonl", '["a"]\n{"text": "b"}\n'), ()),
    ("JSONL: 100,000 brackets", put("a.jsonl", "[" * 100_000 + '\n{"text": "b"}\n'), ()),
    ("JSONL: a number of 5,000 digits", put("a.jsonl", '{"text": "b", "n": ' + "1" * 5000 + "}\n"), ()),
    ("CSV: quotes over lines", put("a.csv", 'n,text\n1,"two\nlines"\n'), ()),
    ("CSV: a quote that never ends", put("a.csv", 'n,text\n1,"two\n2,x\n'), ()),
    ("CSV: a short row", put("a.csv", "n,text\n1\n2,b\n"), ()),
    ("CSV: no such column", put("a.csv", "n,body\n1,x\n"), ()),
    ("Parquet: a nested text column", table("a.parquet", {"text": pa.array([{"a": "b"}])}), ()),
    ("Parquet: no text column", table("a.parquet", {"body": ["a"]}), ()),
    ("Parquet: a missing value", table("a.parquet", {"text": ["a", None]}), ()),
    ("Parquet: cut short", table("a.parquet", {"text": ["a"] * 99}, -20), ()),
    ("Arrow stream without its end mark", table("a.arrow", {"text": ["a"] * 99}, -8), ()),
    ("gz cut short", put("a.txt.gz", gzip.compress(LINES)[:-9]), ()),
    ("xz cut short", put("a.txt.xz", lzma.compress(LINES)[:-9]), ()),
    ("zst that is none", put("a.txt.zst", LINES), ()),
    ("bz2 with something behind it", put("a.txt.bz2", bz2.compress(LINES) + b"behind"), ()),
    ("two gz members joined", put("a.txt.gz", gzip.compress(b"one\n") + gzip.compress(b"two\n")), ()),
    ("gz bomb (70 MB in 70 kB)", put("a.txt.gz", gzip.compress(bytes(70_000_000))), ()),
    ("WikiExtractor: an element that does not end", put("wiki_00", '<doc id="1">\none\n'), ()),
    ("WET: a record cut short", put("a.wet", WET[:-10]), ()),
    ("a file of unknown format, among others", lambda f: (put("a.txt", GOOD)(f), put("b.pdf", "x")(f)), ()),
    ("a folder that links to itself", loop, ()),
    ("one file under two names", two_links, ()),
    ("a link to nothing", lambda f: (f / "a.txt").symlink_to("nowhere"), ()),
    ("a FIFO", lambda f: os.mkfifo(f / "a.txt"), ()),
    ("a socket", socket_file, ()),
    ("a name that is not UTF-8", put(INVALID_NAME, GOOD), ()),
]


def run(make: Make, options: tuple[str, ...]) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "corpus"
        folder.mkdir()
        make(folder)
        dest = Path(temporary) / "made"
        arguments = ["shard", str(folder), str(dest), "--executor", "serial", "--num-shards", "2", *options]
        result = CliRunner().invoke(main, arguments)
        said = result.output
        if result.exit_code == 0 and "warning" not in said:
            ledger = json.loads((dest / "manifest.json").read_text())["ledger"]
            counts = {k: n for k, n in ledger["counts"].items() if n}
            account = ledger["documents"]
            parts = [f"{account['in']:,} in"]
            parts += [f"+ {n:,} {reason.replace('_', ' ')}" for reason, n in account["added"].items()]
            parts += [f"- {n:,} {reason.replace('_', ' ')}" for reason, n in account["dropped"].items()]
            noted = "".join(f"; {name.replace('_', ' ')} {n:,}" for name, n in counts.items())
            said = f"{' '.join(parts)} = {account['out']:,} out{noted}"
        said = said.replace("clozeline: error: ", "").replace(f"{folder}/", "")
        said = said.replace(str(folder), "corpus").replace(temporary, ".")
        said = said.strip().splitlines()[-1 if result.exit_code else 0]
        said = f"**refused**: {said}" if result.exit_code else said
        return result.exit_code, said.replace("|", "\\|").replace("<", "&lt;")


def rows() -> str:
    lines = ["| input | by default | with `--errors skip` |", "|---|---|---|"]
    for what, make, options in CASES:
        code, said = run(make, options)
        again = run(make, (*options, "--errors", "skip"))[1] if code and "no input files" not in said else ""
        lines.append(f"| {what} | {said} | {'the same' if again == said else again} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    made = rows()
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + made + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page())
