"""Text that is not UTF-8, WikiExtractor's and web archives' text, standard input, and readers that fail or read little."""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sharder import SERIAL, Sharder, documents_of, texts

from clozeline import InputError, JobError, ReadOptions, ShardOptions, shard
from clozeline.sharding.files import InputFile

GERMAN = "".join(f"Die schönen Mühlen am Bächlein gehören seit {i} Jahren der Familie Straßer.\n" for i in range(40))
RUSSIAN = "".join(f"Все счастливые семьи похожи друг на друга {i}\n" for i in range(40))
NAMED = [
    (GERMAN, "cp1252"),
    (GERMAN, "utf-16"),
    (GERMAN, "utf-8-sig"),
    (RUSSIAN, "koi8-r"),
    (RUSSIAN, "utf-32"),
    (RUSSIAN, "utf-16-le"),
]
FOUND_OUT = [(GERMAN, "utf-8"), (GERMAN, "cp1252"), (RUSSIAN, "cp1251"), (GERMAN, "utf-16"), (RUSSIAN, "utf-32")]
JSONL = gzip.compress(b'{"text": "one"}\n{"text": "two"}\n')


@pytest.mark.parametrize(("text", "encoding"), NAMED)
@pytest.mark.parametrize("ending", ["txt", "txt.gz"])
def test_a_named_encoding_gives_the_documents_of_utf8(
    sharder: Sharder, tmp_path: Path, text: str, encoding: str, ending: str
) -> None:
    path = tmp_path / f"a.{ending}"
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    result, found = sharder(path, encoding=encoding, num_shards=3)
    assert texts(found) == text.splitlines()
    if encoding != "utf-8-sig":
        assert [n for name, n in result.ledger["counts"].items() if name.startswith("files_in_")] == [1]


@pytest.mark.parametrize(("text", "encoding"), FOUND_OUT)
def test_auto_finds_the_encoding_of_each_file_and_counts_it(
    sharder: Sharder, tmp_path: Path, text: str, encoding: str
) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    (tmp_path / "b.txt").write_bytes(b"plain\n")
    result, found = sharder(tmp_path / "a.txt", tmp_path / "b.txt", encoding="auto")
    assert texts(found) == [*text.splitlines(), "plain"]
    counted = {name: n for name, n in result.ledger["counts"].items() if name.startswith("files_in_")}
    assert sum(counted.values()) == (encoding != "utf-8")


def test_what_is_invalid_in_its_own_encoding_goes_by_errors(sharder: Sharder, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\nbad \x81 here\nfine\n")  # 0x81 is no character of cp1252
    with pytest.raises(InputError, match=r"a\.txt: line 2, byte 9: not valid cp1252"):
        sharder(path, encoding="cp1252")
    result, found = sharder(path, encoding="cp1252", errors="skip")
    assert texts(found) == ["good", "fine"]
    result, found = sharder(path, encoding="cp1252", errors="replace")
    assert texts(found) == ["good", "bad \ufffd here", "fine"]
    assert result.ledger["counts"]["documents_with_replaced_bytes"] == 1
    path.write_bytes("good\nfine\n".encode("utf-16-le")[:-1])  # half a character at the end
    with pytest.raises(InputError, match="not valid utf-16-le"):
        sharder(path, encoding="utf-16-le")


def test_an_unknown_encoding_is_refused() -> None:
    for name in ("latin-9000", "rot13", "base64"):
        with pytest.raises(ValueError, match="encoding is"):
            ReadOptions(encoding=name)


WIKI = """<doc id="1" url="https://example.org/1" title="One">
One

Text of one,
with <b>tags</b> & more.

</doc>
<doc id="2" url="https://example.org/2" title="Two">
Two

</doc>
<doc id="3" url="https://example.org/3" title="Three">
</doc>
"""


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("name", ["AA/wiki_00", "x.txt", "AB/en_wiki_07", "wiki_03.bz2"])
def test_wikiextractor_elements_are_documents(sharder: Sharder, tmp_path: Path, name: str, shards: int) -> None:
    import bz2

    path = tmp_path / "corpus" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(bz2.compress(WIKI.encode()) if name.endswith("bz2") else WIKI.encode())
    result, found = sharder(tmp_path / "corpus", documents=("wiki:x*",), num_shards=shards)
    assert [t.strip() for t in texts(found)] == ["One\n\nText of one,\nwith <b>tags</b> & more.", "Two"]
    assert result.ledger["documents"]["dropped"] == {"blank": 1}


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda w: "stray\n" + w, "text outside of a <doc> element"),
        (lambda w: w.replace('</doc>\n<doc id="3"', '<doc id="3"'), "a <doc> element without its </doc>"),
        (lambda w: w.replace("</doc>", "</doc>\nstray", 1), "text behind a </doc>"),
    ],
)
def test_what_is_not_in_an_element_is_named_or_counted(
    sharder: Sharder, tmp_path: Path, damage: object, what: str
) -> None:
    path = tmp_path / "wiki_00"
    path.write_text(damage(WIKI))
    with pytest.raises(InputError, match=f"{what}; see --documents"):
        sharder(path)
    result, _ = sharder(path, errors="skip")
    assert result.ledger["documents"]["dropped"]["no_doc_element"] == 1


def test_a_long_wikiextractor_element_comes_in_pieces(sharder: Sharder, tmp_path: Path) -> None:
    path = tmp_path / "wiki_00"
    body = " ".join(f"word{i}" for i in range(3000))
    path.write_text(f'<doc id="1">\n{body}\n</doc>\n<doc id="2">\nshort\n</doc>\n')
    _, found = sharder(path, max_document_bytes=1024, num_shards=3)
    assert "".join(texts(found)[:-1]).split() == body.split()
    assert texts(found)[-1].strip() == "short"


@pytest.mark.shared
def test_every_article_of_a_real_wikiextractor_file(sharder: Sharder, shared: Path) -> None:
    path = shared / "messy" / "wikiextractor_doc"
    data = (path / "en_wiki_00").read_text("utf-8")
    bodies = re.findall(r"<doc [^\n]*>\n(.*?)</doc>", data, re.DOTALL)
    for shards in (1, 5):
        assert texts(sharder(path, num_shards=shards)[1]) == [b for b in bodies if b.strip()]


def wet(*bodies: bytes, kind: bytes = b"conversion") -> bytes:
    return b"".join(
        b"WARC/1.0\r\nWARC-Type: %s\r\nWARC-Target-URI: http://x/\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n"
        % (kind, len(b), b)
        for b in bodies
    )


@pytest.mark.parametrize("name", ["a.warc.wet", "a.warc.wet.gz"])
@pytest.mark.parametrize("shards", [1, 4])
def test_conversion_records_of_web_archives_are_documents(
    sharder: Sharder, tmp_path: Path, name: str, shards: int
) -> None:
    pages = ["WARC/1.0\r\n\r\ntext that looks like a header", "two\nlines", "", "caf\u00e9"]
    parts = [wet(b"about", kind=b"warcinfo"), *(wet(p.encode()) for p in pages)]
    path = tmp_path / name
    path.write_bytes(b"".join(gzip.compress(p) for p in parts) if name.endswith("gz") else b"".join(parts))
    result, found = sharder(path, num_shards=shards)
    assert texts(found) == [pages[0].replace("\r\n", "\n"), pages[1], pages[3]]
    assert result.ledger["documents"]["dropped"] == {"blank": 1}
    assert result.ledger["counts"]["warc_records_without_text"] == 1


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"no archive at all\n", "no WARC record"),
        (wet(b"text")[:-12], "cut short"),
        (wet(b"text").replace(b"Length: 4", b"Length: x"), "no Content-Length"),
        (wet(b"text").replace(b"Length: 4", b"Length: 99999999999"), "cut short"),
        (b"WARC/1.0\r\n" + b"x: y\r\n" * 300_000, "headers of more than"),
    ],
)
def test_damaged_web_archives_are_errors(sharder: Sharder, tmp_path: Path, data: bytes, what: str) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(data)
    with pytest.raises(InputError, match=what):
        sharder(path)


@pytest.mark.parametrize(
    ("source", "data"), [("-", b"one\ntwo\n"), ("stdin:jsonl.gz", gzip.compress(b'{"text": "one"}\n{"text": "two"}\n'))]
)
def test_standard_input_is_a_source_that_can_be_resumed(tmp_path: Path, source: str, data: bytes) -> None:
    command = [sys.executable, "-m", "clozeline", "shard", source, str(tmp_path / "made"), "-q"]
    subprocess.run(command, input=data, check=True, capture_output=True)
    found = documents_of(tmp_path / "made")
    assert texts(found) == ["one", "two"]
    assert found[0][0].startswith("stdin.")
    again = subprocess.run([*command, "--resume"], input=data, check=True, capture_output=True)
    assert b"nothing to do" in again.stdout
    other = subprocess.run([*command, "--resume"], input=data + data, check=False, capture_output=True)
    assert other.returncode == 2
    assert b"other work" in other.stderr
    empty = subprocess.run(command, input=b"", check=False, capture_output=True)
    assert (empty.returncode, b"standard input is empty" in empty.stderr) == (2, True)


class Failing(io.RawIOBase):
    """Reads a little at a time, and fails after so many bytes."""

    def __init__(self, path: str, at: int) -> None:
        self.file, self.at = open(path, "rb"), at  # noqa: PTH123, SIM115  # closed with it

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        if self.file.tell() >= self.at:
            raise OSError(5, "Input/output error", "a.txt")
        return self.file.read(min(size, 7) if size > 0 else 7)

    def close(self) -> None:
        self.file.close()
        super().close()


@pytest.mark.parametrize("mode", ["lines", "blank-lines", "files", "wiki"])
def test_short_reads_lose_nothing(sharder: Sharder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(WIKI if mode == "wiki" else "one\ntwo\n\n\nthree\n" * 20)
    expected = sharder(path, documents=(mode,), num_shards=3)[1]
    monkeypatch.setattr(InputFile, "open", lambda self: Failing(self.path, 10**9))
    assert sharder(path, documents=(mode,), num_shards=3)[1] == expected


def test_an_input_error_of_the_machine_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one two three\n" * 100)
    options = ShardOptions(num_shards=4)
    shard(path, tmp_path / "clean", options, SERIAL)
    with monkeypatch.context() as patch:
        patch.setattr(InputFile, "open", lambda self: Failing(self.path, 1000))
        with pytest.raises(JobError, match=r"text-0000\d-of-00004\.arrow: Input/output error \(a\.txt\); .*--resume"):
            shard(path, tmp_path / "made", options, SERIAL)
    assert list((tmp_path / "made").glob("*.arrow"))
    from clozeline import RunOptions

    shard(path, tmp_path / "made", options, RunOptions(executor="serial", resume=True))
    assert documents_of(tmp_path / "made") == documents_of(tmp_path / "clean")
    assert not os.path.lexists(tmp_path / "made" / ".clozeline")
