"""From a document to its rows and from a row to its documents; and the account of a scheme that others can be compared with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from packed import SERIAL, read_rows, write_text

import clozeline
from clozeline.cli.main import main
from clozeline.packing.pack import RecentDocuments
from clozeline.packing.provenance import find_document, find_sources
from clozeline.store.dataset import Data
from clozeline.store.documents import Documents


def show(*arguments: object) -> Result:
    result = CliRunner().invoke(main, ["show", *map(str, arguments)])
    assert result.exit_code in (0, 2), result.output
    return result


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory, words: Path) -> Path:
    """Documents of 1 to 90 words in rows of 32, two shards; in a text file, one a line."""
    place = tmp_path_factory.mktemp("provenance")
    lines = [" ".join(f"w{(13 * d + t) % 300}" for t in range(1 + d * 37 % 90)) for d in range(50)]
    (place / "corpus.txt").write_text("\n".join(lines) + "\n")
    options = clozeline.PackOptions(max_length=32, provenance=True)
    clozeline.prepare(
        place / "corpus.txt", place, words, clozeline.ShardOptions(num_shards=2), options, None, SERIAL, keep_text=True
    )
    return place / "packed"


def test_what_a_document_gives_a_row_is_what_the_row_has_of_it(packed: Path) -> None:
    data = Data(packed)
    by_row = [stretch for row in range(data.manifest.rows) for stretch in find_sources(data, row)]
    by_document = [stretch for name in {s.doc_id for s in by_row} for stretch in find_document(data, name)]
    assert sorted(by_row, key=lambda s: (s.row, s.start)) == sorted(by_document, key=lambda s: (s.row, s.start))
    assert len({s.doc_id for s in by_row}) == 50


def test_the_source_offset_finds_the_text(packed: Path) -> None:
    source = (packed.parent / "corpus.txt").read_bytes()
    rows = read_rows(packed)
    for stretch in (s for row in rows for s in row.stretches):
        text = source[stretch["source_offset"] :][: stretch["text_bytes"]].decode().split()
        assert len(text) == stretch["document_tokens"]
        first = text[stretch["first_token"]]
        row = next(r for r in rows if (r.shard, r.number) == (stretch["shard"], stretch["row"]))
        assert row.ids[stretch["start"]] == 5 + int(first.removeprefix("w"))


def test_show_names_the_rows_of_a_document_and_the_documents_of_a_row(packed: Path) -> None:
    data = Data(packed)
    wanted = next(s for s in find_sources(data, 2))
    found = json.loads(show(packed, "--where", wanted.doc_id, "--json").stdout)["found"]
    assert 2 in [s["row"] for s in found]
    assert wanted.doc_id in show(packed, "--row", 2, "--rows", 1).stdout
    assert f"row {found[0]['row']} (shard" in show(packed, "--where", wanted.doc_id).stdout
    assert "no row holds corpus.txt:1" in show(packed, "--where", "corpus.txt:1").stdout


def test_data_packed_without_provenance_says_so(words: Path, tmp_path: Path) -> None:
    text = write_text(tmp_path, ["w1 w2 w3"] * 9)
    clozeline.pack(text, tmp_path / "packed", words, clozeline.PackOptions(max_length=8), SERIAL)
    result = show(tmp_path / "packed", "--where", "corpus.jsonl:0")
    assert (result.exit_code, "--provenance" in result.stderr) == (2, True)


def test_documents_whose_rows_are_written_are_forgotten() -> None:
    recent = RecentDocuments()
    recent.add(Documents([f"a:{i}" for i in range(10)], [b"x"] * 10))
    assert recent(np.array([3, 4]), 3) == (["a:3", "a:4"], [1, 1])
    assert recent(np.array([9, 3]), 9) == (["a:9", "a:3"], [1, 1])
    assert len(recent) == 1  # a:9, which a row to come may hold the rest of


def test_schemes_are_compared_in_the_same_names(words: Path, tmp_path: Path) -> None:
    text = write_text(tmp_path, [" ".join(f"w{(d + t) % 300}" for t in range(5 + d % 50)) for d in range(60)])
    places = []
    for scheme in ("concat", "documents", "best-fit"):
        places.append(tmp_path / scheme)
        clozeline.pack(text, places[-1], words, clozeline.PackOptions(packing=scheme, max_length=32), SERIAL)
    reports = json.loads(show(*places, "--packing", "--json").stdout)
    assert len({tuple(report) for report in reports}) == 1
    for report, place in zip(reports, places, strict=True):
        rows = read_rows(place)
        assert report["positions"] == 32 * len(rows)
        assert report["tokens"] == sum(r.columns["num_tokens"] for r in rows)
        assert report["text_tokens"] == sum(5 + d % 50 for d in range(60)) == report["tokens_in"]
        assert report["documents"] == 60
    concat, documents, best_fit = reports
    assert documents["documents_per_row"] == 1
    assert documents["documents_cut"] == best_fit["documents_cut"] == sum(5 + d % 50 > 30 for d in range(60))
    assert min(concat["fill"], best_fit["fill"]) > documents["fill"]
    table = show(*places, "--packing").stdout.splitlines()
    assert table[1].split() == ["packing", "concat", "documents", "best-fit"]
    assert len({len(line) for line in table}) == 1
    assert "give --packing" in show(*places).stderr
