"""Text files as the world has them: newlines, byte order marks, invalid bytes, enormous lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from sharder import Sharder, texts

from clozeline import InputError


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_there_are_as_many_documents_as_line_feeds(sharder: Sharder, tmp_path: Path) -> None:
    data = "one\u2028a\u2029b\x0bc\x0cd\x1ce\x85f\rg\ntwo\nthree\n"
    _, found = sharder(write(tmp_path / "a.txt", data.encode()))
    assert texts(found) == ["one\u2028a\u2029b\x0bc\x0cd\x1ce\x85f\rg", "two", "three"]


@pytest.mark.parametrize("mode", ["lines", "blank-lines", "files"])
def test_crlf_and_byte_order_marks_do_not_reach_the_text(sharder: Sharder, tmp_path: Path, mode: str) -> None:
    data = b"\xef\xbb\xbfone\r\n\r\n \t\r\n\xef\xbb\xbftwo\r\nthree\r\n"
    _, found = sharder(write(tmp_path / "a.txt", data), documents=(mode,))
    expected = {
        "lines": ["one", "two", "three"],
        "blank-lines": ["one", "two\nthree"],
        "files": ["one\n\n \t\ntwo\nthree\n"],
    }
    assert texts(found) == expected[mode]


def test_joined_files_lose_every_byte_order_mark(sharder: Sharder, tmp_path: Path) -> None:
    result, found = sharder(
        write(tmp_path / "a.txt", b"\xef\xbb\xbfone\n\n\xef\xbb\xbf\n\xef\xbb\xbftwo\n"), documents=("blank-lines",)
    )
    assert texts(found) == ["one", "two"]
    assert result.ledger["counts"]["documents_with_byte_order_mark"] == 2


def test_invalid_bytes_stop_by_file_line_and_byte(sharder: Sharder, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"good\nbad \xff here\ngood\n")
    with pytest.raises(InputError, match=r"a\.txt: line 2, byte 9: not UTF-8 \(byte 0xff\)"):
        sharder(path)


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x80", b"caf\xe9 "]
)
def test_invalid_documents_are_skipped_or_replaced_and_counted(sharder: Sharder, tmp_path: Path, bad: bytes) -> None:
    path = write(tmp_path / "a.txt", b"good\nx" + bad + b"y\nfine\n")
    result, found = sharder(path, errors="skip")
    assert texts(found) == ["good", "fine"]
    assert result.ledger["documents"]["dropped"] == {"invalid_utf8": 1}
    result, found = sharder(path, errors="replace")
    assert texts(found)[1].startswith(bad.decode(errors="replace").join("x ").strip()[:1])
    assert "\ufffd" in texts(found)[1]
    assert result.ledger["counts"]["documents_with_replaced_bytes"] == 1


def test_nul_characters_are_text(sharder: Sharder, tmp_path: Path) -> None:
    assert texts(sharder(write(tmp_path / "a.txt", b"a\x00b\n\x00\n"))[1]) == ["a\x00b", "\x00"]


def test_blank_documents_are_dropped_and_counted(sharder: Sharder, tmp_path: Path) -> None:
    result, found = sharder(write(tmp_path / "a.txt", b"one\n\n  \t\r\n\x0b\x0c\ntwo"))
    assert texts(found) == ["one", "two"]
    assert result.ledger["documents"]["dropped"] == {"blank": 3}


@pytest.mark.parametrize("mode", ["lines", "blank-lines", "files"])
def test_a_long_document_comes_in_pieces_that_join_to_it(sharder: Sharder, tmp_path: Path, mode: str) -> None:
    text = " ".join(f"word{i}\u00e9" for i in range(2000))
    result, found = sharder(
        write(tmp_path / "a.txt", text.encode()), documents=(mode,), max_document_bytes=1024, num_shards=3
    )
    assert "".join(texts(found)) == text
    assert all(len(t.encode()) <= 1024 and t.endswith((" ", "9\u00e9")) for t in texts(found))
    assert result.ledger["documents"]["in"] == 1
    assert result.ledger["documents"]["added"] == {"pieces_of_long_documents": len(found) - 1}


def test_white_space_without_end_is_an_input_error(sharder: Sharder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="white space from byte 3"):
        sharder(
            write(tmp_path / "a.txt", b"one" + b" " * 20_000_000), documents=("blank-lines",), max_document_bytes=1024
        )


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("shards", [1, 8])
def test_fewer_documents_than_shards(sharder: Sharder, tmp_path: Path, count: int, shards: int) -> None:
    path = write(tmp_path / "a.txt", b"\n" + b"text\n" * count)
    if not count:
        with pytest.raises(InputError, match="no documents"):
            sharder(path, num_shards=shards)
        return
    result, found = sharder(path, num_shards=shards)
    assert (len(found), result.shards) == (count, shards)


def test_nothing_but_empty_files_is_an_input_error(sharder: Sharder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing but empty files"):
        sharder(write(tmp_path / "a.txt", b""), write(tmp_path / "b.txt", b""))


def test_an_empty_file_among_others_changes_nothing(sharder: Sharder, tmp_path: Path) -> None:
    write(tmp_path / "b.txt", b"")
    write(tmp_path / "c.txt", b"two\n")
    _, found = sharder(write(tmp_path / "a.txt", b"one\n"), tmp_path / "b.txt", tmp_path / "c.txt")
    assert found == [("a.txt:0", "one"), ("c.txt:0", "two")]


@pytest.mark.parametrize("mode", ["lines", "blank-lines"])
def test_two_gigabytes_without_a_line_feed(sharder: Sharder, tmp_path: Path, mode: str) -> None:
    """A sparse file of NULs, the first sixty-fourth of it: the path is the same, the time is not."""
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.truncate(2**25)
    result, found = sharder(path, documents=(mode,), max_document_bytes=2**22)
    assert result.ledger["documents"]["in"] == 1
    assert [len(t) for t in texts(found)] == [2**22] * 8


@pytest.mark.shared
def test_messy_files_of_others(sharder: Sharder, shared: Path) -> None:
    for path in sorted((shared / "messy").glob("*.txt")):
        if path.name == "empty.txt":
            with pytest.raises(InputError, match="nothing but empty files"):
                sharder(path)
            continue
        data = path.read_bytes()
        try:
            data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            with pytest.raises(InputError, match=rf"{path.name}: line {line}, byte {error.start}: not UTF-8"):
                sharder(path)
        result, found = sharder(path, errors="skip")
        assert result.ledger["documents"]["in"] == len(data.removesuffix(b"\n").split(b"\n"))
        assert not any(t.startswith("\ufeff") or t.endswith(("\r", "\n")) for t in texts(found))
