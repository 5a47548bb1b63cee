"""The same documents from every format and compression, and what each format's bad rows come to."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from sharder import Sharder, texts

from clozeline import InputError

DOCUMENTS = [f"Text {i} \u00e9\u4e2d \U0001f600 " + "word " * (i % 17) for i in range(300)]


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


def as_csv(delimiter: str) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(["n", "text"])
    writer.writerows(enumerate(DOCUMENTS))
    return out.getvalue().encode()


CONTENT = {
    "txt": "\n".join(DOCUMENTS).encode(),
    "jsonl": b"".join(json.dumps({"n": i, "text": t}).encode() + b"\n" for i, t in enumerate(DOCUMENTS)),
    "csv": as_csv(","),
    "tsv": as_csv("\t"),
}
JOINED = {"txt": b"".join(t.encode() + b"\n" for t in DOCUMENTS)}


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("kind", CONTENT)
@pytest.mark.parametrize("shards", [1, 5])
def test_every_format_and_compression_gives_the_same_documents(
    sharder: Sharder, tmp_path: Path, kind: str, compression: str, shards: int
) -> None:
    path = tmp_path / f"a.{kind}{compression}"
    path.write_bytes(COMPRESS[compression](CONTENT[kind]))
    _, found = sharder(path, num_shards=shards)
    assert texts(found) == DOCUMENTS


@pytest.mark.parametrize("compression", [c for c in COMPRESS if c])
def test_all_members_of_a_joined_file_are_read(sharder: Sharder, tmp_path: Path, compression: str) -> None:
    half = len(JOINED["txt"]) // 2
    compress = COMPRESS[compression]
    path = tmp_path / f"a.txt{compression}"
    path.write_bytes(compress(JOINED["txt"][:half]) + compress(b"") + compress(JOINED["txt"][half:]))
    assert texts(sharder(path, num_shards=3)[1]) == DOCUMENTS


@pytest.mark.parametrize("damage", ["cut", "cut second member", "rubbish behind", "rubbish", "flipped"])
@pytest.mark.parametrize("compression", [c for c in COMPRESS if c])
def test_a_damaged_compressed_file_is_an_error_not_a_shorter_corpus(
    sharder: Sharder, tmp_path: Path, compression: str, damage: str
) -> None:
    data = COMPRESS[compression](JOINED["txt"])
    if damage == "flipped" and compression == ".zst":
        pytest.skip("a zstd frame need not have a checksum")
    path = tmp_path / f"a.txt{compression}"
    path.write_bytes(
        {
            "cut": data[:-3],
            "cut second member": data + data[: len(data) // 2],
            "rubbish behind": data + b"rubbish",
            "rubbish": b"this is no compressed file, whatever it is called",
            "flipped": data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :],
        }[damage]
    )
    with pytest.raises(InputError, match=r"a\.txt\.\w+: damaged or cut short"):
        sharder(path)


@pytest.mark.parametrize("compression", [c for c in COMPRESS if c])
def test_a_decompression_bomb_is_refused(sharder: Sharder, tmp_path: Path, compression: str) -> None:
    path = tmp_path / f"a.txt{compression}"
    path.write_bytes(COMPRESS[compression](bytes(2**26 + 2**22)))
    with pytest.raises(InputError, match="grows to more than 250 times"):
        sharder(path)
    sharder(path, max_compression_ratio=10**9)


def table(values: list[object], kind: pa.DataType) -> pa.Table:
    return pa.table({"n": list(range(len(values))), "text": pa.array(values, kind)})


KINDS = [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]


@pytest.mark.parametrize("kind", [*KINDS, pa.string_view()], ids=str)
@pytest.mark.parametrize("ending", ["parquet", "file.arrow", "stream.arrow"])
@pytest.mark.parametrize("shards", [1, 4])
def test_tables_give_the_same_documents(
    sharder: Sharder, tmp_path: Path, ending: str, kind: pa.DataType, shards: int
) -> None:
    rows = table([t.encode() for t in DOCUMENTS] if kind == pa.binary() else list(DOCUMENTS), kind)
    path = tmp_path / f"a.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(rows, path, row_group_size=70)
    else:
        opened = pa.ipc.new_file if ending == "file.arrow" else pa.ipc.new_stream
        with opened(path, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=64)
    _, found = sharder(path, num_shards=shards)
    assert texts(found) == DOCUMENTS


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_table_without_a_text_column_names_its_columns(sharder: Sharder, tmp_path: Path, ending: str) -> None:
    for column in (pa.array([{"text": "a"}]), pa.array([1]), pa.array([["a"]])):
        rows = pa.table({"text": column, "other": ["x"]})
        path = tmp_path / f"a.{ending}"
        if ending == "parquet":
            pyarrow.parquet.write_table(rows, path)
        else:
            with pa.ipc.new_stream(path, rows.schema) as writer:
                writer.write_table(rows)
        with pytest.raises(InputError, match=r"column 'text' holds .*, not text"):
            sharder(path)
        with pytest.raises(InputError, match="no column 'body'; it has text, other"):
            sharder(path, text_field="body")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_missing_and_invalid_values_in_tables_are_named_by_row(sharder: Sharder, tmp_path: Path, ending: str) -> None:
    for values, what, reason in (
        ([b"a", None, b"b"], "no text in 'text'", "no_text"),
        ([b"a", b"x\xffy", b"b"], "not UTF-8", "invalid_utf8"),
    ):
        text = pa.array(values, pa.binary()).view(pa.string())
        rows = pa.table({"text": text})
        path = tmp_path / f"a.{ending}"
        if ending == "parquet":
            pyarrow.parquet.write_table(rows, path)
        else:
            with pa.ipc.new_file(path, rows.schema) as writer:
                writer.write_table(rows)
        with pytest.raises(InputError, match=rf"a\.\w+: row 1: {what}"):
            sharder(path)
        result, found = sharder(path, errors="skip")
        assert texts(found) == ["a", "b"]
        assert result.ledger["documents"]["dropped"] == {reason: 1}


def test_a_cut_or_joined_arrow_stream_is_an_error(sharder: Sharder, tmp_path: Path) -> None:
    """The stream format has no footer: cut at a batch boundary, or joined, it reads as a shorter file."""
    rows = table(list(DOCUMENTS), pa.string())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=64)
    data = sink.getvalue().to_pybytes()
    path = tmp_path / "a.arrow"
    for content, what in ((data[:-8], "end mark of the stream is missing"), (data + data, "behind the end")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=what):
            sharder(path)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("where", [0.05, 0.3, 0.5, 0.7, 0.95])
def test_a_damaged_table_is_an_input_error(sharder: Sharder, tmp_path: Path, ending: str, where: float) -> None:
    rows = pa.table({"text": DOCUMENTS})
    path = tmp_path / f"a.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(rows, path, row_group_size=70, write_page_checksum=True)
    else:
        with pa.ipc.new_file(path, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=64)
    data = bytearray(path.read_bytes())
    at = int(len(data) * where)
    data[at : at + 40] = b"\xff" * 40
    path.write_bytes(data)
    with pytest.raises(InputError):
        sharder(path)


BAD_LINES = {
    "null": (b'{"text": null}', "'text' is null, not text", "no_text"),
    "number": (b'{"text": 3}', "'text' is a number, not text", "no_text"),
    "array": (b'{"text": ["a"]}', "'text' is an array, not text", "no_text"),
    "missing": (b'{"body": "a"}', "no key 'text' \\(it has 'body'\\)", "no_text"),
    "surrogate": (b'{"text": "a\\ud800b"}', "an unpaired surrogate", "invalid_unicode"),
    "not an object": (b'["a"]', "an array where an object is expected", "not_an_object"),
    "not JSON": (b'{"text": "a"', "not JSON", "not_json"),
    "two values": (b'{"text": "a"} {"text": "b"}', "not JSON", "not_json"),
    "invalid UTF-8": (b'{"text": "a\xff"}', "not UTF-8 \\(byte 0xff\\)", "invalid_utf8"),
    "UTF-16": ('{"text": "a"}'.encode("utf-16"), "not UTF-8", "invalid_utf8"),
    "deep": (b"[" * 100_000, "not JSON", "not_json"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_json_line_is_named_or_counted(sharder: Sharder, tmp_path: Path, case: str) -> None:
    line, what, reason = BAD_LINES[case]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n' + line + b'\n{"text": "two"}\n')
    with pytest.raises(InputError, match=rf"a\.jsonl: line 2, byte 16: {what}"):
        sharder(path)
    result, found = sharder(path, errors="skip")
    assert texts(found) == ["one", "two"]
    assert result.ledger["documents"]["dropped"] == {reason: 1}


def test_json_lines_may_hold_any_number_blank_lines_and_a_byte_order_mark(sharder: Sharder, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"text": "one", "n": ' + b"1" * 5000 + b'}\r\n\r\n{"text": ""}\n{"text": "\\ud83d\\ude00\\u0000"}'
    )
    result, found = sharder(path)
    assert texts(found) == ["one", "\U0001f600\x00"]
    assert result.ledger["documents"]["dropped"] == {"blank": 2}


def test_replace_mends_bytes_and_surrogates_in_json(sharder: Sharder, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a\xffb"}\n{"text": "c\\udc00d"}\n')
    result, found = sharder(path, errors="replace")
    assert texts(found) == ["a\ufffdb", "c\ufffdd"]
    assert result.ledger["counts"]["documents_with_replaced_bytes"] == 2


def test_a_json_line_beyond_the_limit_says_so(sharder: Sharder, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "short"}\n{"text": "' + b"x" * 10_000 + b'"}\n')
    with pytest.raises(
        InputError, match=r"line 2, byte 18: a line longer than 6,144 bytes, 6 times --max-document-bytes"
    ):
        sharder(path, max_document_bytes=1024)
    result, found = sharder(path, max_document_bytes=1024, errors="skip")
    assert texts(found) == ["short"]
    assert result.ledger["documents"]["dropped"] == {"line_too_long": 2}


def test_long_values_in_rows_are_cut_with_ids_of_their_own(sharder: Sharder, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"text": ["x" * 3000] * 2000}), path)
    result, found = sharder(path, max_document_bytes=1024)
    assert result.ledger["documents"]["added"] == {"pieces_of_long_documents": 4000}
    assert found[1][0] == "a.parquet:0+1024"


def test_quotes_over_lines_and_nul_in_csv(sharder: Sharder, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfn,text\r\n1,"two\nlines, ""quoted"""\r\n\r\n2,nul\x00here\r\n')
    result, found = sharder(path)
    assert texts(found) == ['two\nlines, "quoted"', "nul\x00here"]
    assert result.ledger["documents"]["dropped"] == {"blank": 1}


def test_bad_csv_rows_are_named_or_counted(sharder: Sharder, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"n,text\n1,good\n2\n3,b\xffd\n4,fine\n")
    with pytest.raises(InputError, match=r"a\.csv: line 3, byte 14: no text in 'text'"):
        sharder(path)
    result, found = sharder(path, errors="skip")
    assert texts(found) == ["good", "fine"]
    assert result.ledger["documents"]["dropped"] == {"no_text": 1, "invalid_utf8": 1}
    path.write_bytes(b"n,text\n1,good\n3,b\xffd\n")
    with pytest.raises(InputError, match=r"a\.csv: line 3, byte \d+: not UTF-8"):
        sharder(path)
    result, found = sharder(path, errors="replace")
    assert texts(found) == ["good", "b\ufffdd"]
    assert result.ledger["counts"]["documents_with_replaced_bytes"] == 1
    path.write_bytes(b'n,text\n1,"never closed\n2,x\n')
    with pytest.raises(InputError, match=r"a\.csv: line \d+, byte \d+: not a CSV row"):
        sharder(path, errors="skip")
    path.write_bytes(b"n,body\n1,x\n")
    with pytest.raises(InputError, match="no column 'text'; it has n, body"):
        sharder(path)
