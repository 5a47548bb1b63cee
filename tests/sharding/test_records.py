"""Records of byte ranges: whatever the cut points, block size and newlines, exactly those of the whole file."""

from __future__ import annotations

import io
import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clozeline.sharding import records
from clozeline.sharding.records import (
    EndlessWhiteSpaceError,
    Records,
    cut_pieces,
    line_records,
    paragraph_records,
    range_records,
    whole_record,
)

BOM = b"\xef\xbb\xbf"
WHITE = b" \t\r\f\v"
PARTS = [
    b"\n",
    b"\n\n",
    b"\r\n",
    b"\r",
    b" ",
    b"\t",
    b"a",
    b"be",
    "\u00e9".encode(),
    "\u3002".encode(),
    BOM,
    b"\xff",
    b"\x00",
]
PARTS += ["\u2028".encode(), "\x85".encode(), b"\x0b", b"\x0c", b"\x1c", b"\n \n", b"\n" + BOM + b"\n", b"x" * 70]
files = st.lists(st.sampled_from(PARTS), max_size=40).map(b"".join)
NO_LIMIT = 1 << 40
CUT = {True: paragraph_records, False: line_records}


def plain_lines(data: bytes) -> list[tuple[int, bytes]]:
    """The definition: a line is what a line feed ends."""
    result, position = [], 0
    for line in data.splitlines(keepends=False) if not data else data.removesuffix(b"\n").split(b"\n"):
        result.append((position, line))
        position += len(line) + 1
    return result


def plain_paragraphs(data: bytes) -> list[tuple[int, bytes]]:
    """The definition: lines between blank lines."""
    result: list[tuple[int, bytes]] = []
    open_ = False
    for position, line in plain_lines(data):
        if not line.replace(BOM, b"").strip(WHITE):
            open_ = False
        elif open_:
            start, text = result[-1]
            result[-1] = (start, text + b"\n" + line)
        else:
            result.append((position, line))
            open_ = True
    return result


def flat(found: list[Records]) -> list[tuple[int, int, bytes]]:
    return [item for r in found for item in zip(r.starts, r.offsets, r.raws, strict=True)]


def in_ranges(data: bytes, cuts: list[int], limit: int, *, paragraphs: bool) -> list[tuple[int, int, bytes]]:
    edges = [0, *sorted(min(c, len(data)) for c in cuts), len(data)]
    found = []
    for start, stop in itertools.pairwise(edges):
        if start < stop:
            mine = flat(list(range_records(io.BytesIO(data), start, stop, limit, CUT[paragraphs])))
            assert all(start <= s < stop for s, _, _ in mine)
            found += mine
    return found


@pytest.fixture(params=[True, False], ids=["blank-lines", "lines"])
def paragraphs(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@settings(deadline=None, max_examples=400)
@given(data=files, cuts=st.lists(st.integers(0, 200), max_size=6), block=st.integers(1, 50), paragraphs=st.booleans())
@example(data=b"a\n" + BOM + b"\nb", cuts=[3], block=3, paragraphs=True)
def test_records_of_all_ranges_are_the_records_of_the_file(
    data: bytes, cuts: list[int], block: int, paragraphs: bool
) -> None:
    expected = [(start, start, raw) for start, raw in (plain_paragraphs if paragraphs else plain_lines)(data)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BLOCK_BYTES", block)
        assert in_ranges(data, cuts, NO_LIMIT, paragraphs=paragraphs) == expected
        cut = CUT[paragraphs]
        assert flat(list(cut(io.BytesIO(data).read, 0, NO_LIMIT))) == expected


@settings(deadline=None, max_examples=400)
@given(
    data=files,
    cuts=st.lists(st.integers(0, 200), max_size=6),
    blocks=st.tuples(st.integers(1, 50), st.integers(1, 400)),
    paragraphs=st.booleans(),
)
def test_pieces_of_long_records_do_not_depend_on_ranges_or_blocks(
    data: bytes, cuts: list[int], blocks: tuple[int, int], paragraphs: bool
) -> None:
    limit = 16
    found = []
    for block in blocks:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records, "BLOCK_BYTES", block)
            try:
                found.append(in_ranges(data, cuts if block == blocks[0] else [], limit, paragraphs=paragraphs))
            except EndlessWhiteSpaceError:  # white space longer than a document may be
                assert paragraphs
                assert any(len(run) > limit for run in data.replace(BOM, b"x").split() or [data]) or data.split() != [
                    data
                ]
                return
    assert found[0] == found[1]
    joined = {}
    for start, offset, raw in found[0]:
        assert len(raw) <= limit
        assert data[offset : offset + len(raw)] == raw
        joined[start] = joined.get(start, b"") + raw
    assert list(joined.items()) == [(s, r) for s, r in (plain_paragraphs if paragraphs else plain_lines)(data)]


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="ab \n\u00e9\u3002\u4e2d\U0001f600", max_size=300), st.integers(8, 40))
def test_a_cut_is_never_inside_a_character(text: str, limit: int) -> None:
    pieces, rest = cut_pieces(text.encode(), limit)
    assert "".join(p.decode() for p in (*pieces, rest)) == text
    assert all(0 < len(p) <= limit for p in pieces)


def test_a_cut_follows_white_space_or_a_full_stop() -> None:
    assert cut_pieces(b"one two three", 10) == ([b"one two "], b"three")
    chinese = "\u5929\u5730\u7384\u9ec4\u3002\u5b87\u5b99".encode()
    assert cut_pieces(chinese, 18) == ([chinese[:15]], chinese[15:])


def test_only_a_line_feed_ends_a_line() -> None:
    """U+2028, U+2029, VT, FF, FS, NEL and a lone CR end no line: as many lines as `wc -l` says."""
    data = "a\u2028b\u2029c\x0bd\x0ce\x1cf\x85g\rh\nsecond\n".encode()
    assert len(flat(list(line_records(io.BytesIO(data).read, 0, NO_LIMIT)))) == 2
    assert len(flat(list(paragraph_records(io.BytesIO(data).read, 0, NO_LIMIT)))) == 1


def test_short_reads_give_the_same_records(paragraphs: bool) -> None:
    data = b"\xef\xbb\xbfone\r\n\r\n\r\ntwo\nthree\n\n\n  four"
    cut = CUT[paragraphs]
    whole = flat(list(cut(io.BytesIO(data).read, 0, NO_LIMIT)))
    stream = io.BytesIO(data)
    assert flat(list(cut(lambda _: stream.read(1), 0, NO_LIMIT))) == whole


def test_a_range_inside_one_long_record_is_not_read_to_the_end_of_the_file(paragraphs: bool) -> None:
    class Counting(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            Counting.taken += len(data)
            return data

    file = Counting(b"x" * 40_000_000)
    assert flat(list(range_records(file, 1_000_000, 2_000_000, 1 << 20, CUT[paragraphs]))) == []
    assert Counting.taken < 12_000_000


def test_white_space_without_end_is_refused_not_held_in_memory() -> None:
    blocks = iter([b"text\n", *[b" " * 4096] * 100])
    with pytest.raises(EndlessWhiteSpaceError, match="white space from byte 4"):
        list(paragraph_records(lambda _: next(blocks, b""), 0, 8192))


def test_whole_record_is_everything() -> None:
    assert flat(list(whole_record(io.BytesIO(b"a\n\nb\n").read, 0, NO_LIMIT))) == [(0, 0, b"a\n\nb\n")]
