"""Segment pairs, judged by the words in them: document d has words of its own, in their order."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from packed import SERIAL, Row, read_rows, write_text

import clozeline
from clozeline.packing.tokenizer import load_tokenizer
from clozeline.store.dataset import Data

PER_DOCUMENT = 1000
FIRST_WORD = 5  # ids of special tokens come before


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory, make_wordpiece: object) -> Path:
    """Knows w0 to w59999: a word tells its document and its place in it."""
    folder = tmp_path_factory.mktemp("numbered")
    made: Path = make_wordpiece(folder, [f"w{i}" for i in range(60 * PER_DOCUMENT)])
    return made


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 documents of 1 to 120 sentences of 1 to 12 words, in 4 shards."""
    texts = []
    for document in range(60):
        word, lines = document * PER_DOCUMENT, []
        for sentence in range([1, 2, 7, 40, 120][document % 5]):
            size = 1 + (sentence * 5 + document) % 12
            lines.append(" ".join(f"w{word + i}" for i in range(size)))
            word += size
        texts.append("\n".join(lines))
    return write_text(tmp_path_factory.mktemp("pairs"), texts, shards=4)


class Segments(NamedTuple):
    a: list[int]
    b: list[int]


def segments(row: Row) -> Segments:
    """The words of A and B by number, from ids and token types alone."""
    ids, types = np.array(row.ids), row.columns["token_type_ids"]
    used = int(row.columns["num_tokens"])
    first = int(np.flatnonzero(types)[0])
    assert (ids[0], ids[first - 1], ids[used - 1]) == (2, 3, 3)  # [CLS] A [SEP] B [SEP]
    assert types.tolist() == [0] * first + [1] * (used - first) + [0] * (len(ids) - used)
    return Segments((ids[1 : first - 1] - FIRST_WORD).tolist(), (ids[first : used - 1] - FIRST_WORD).tolist())


def is_run(words: list[int]) -> bool:
    return words == list(range(words[0], words[0] + len(words)))


def pack(text: Path, tokenizer: Path, dest: Path, **options: object) -> list[Row]:
    given = clozeline.PackOptions(packing="pairs", max_length=48, sentences="lines", **options)
    clozeline.pack(text, dest, tokenizer, given, SERIAL)
    return read_rows(dest)


def test_the_label_says_whether_b_follows_a(text: Path, numbered: Path, tmp_path: Path) -> None:
    rows = pack(text, numbered, tmp_path / "packed", pair_copies=4, seed=5)
    random = untrimmed = 0
    for row in rows:
        a, b = segments(row)
        assert is_run(a)
        assert is_run(b)
        same = a[0] // PER_DOCUMENT == b[0] // PER_DOCUMENT
        if row.columns["next_sentence_label"] == 1:
            assert not same
            random += 1
        else:
            assert same
            assert b[0] > a[-1]
            untrimmed += b[0] == a[-1] + 1
    # Documents of one sentence, and last sentences of others, have only random partners: the share is a little over a half.
    assert 0.45 < random / len(rows) < 0.65
    assert untrimmed > 0.5 * (len(rows) - random)


def test_random_segments_come_from_the_whole_shard_set(text: Path, numbered: Path, tmp_path: Path) -> None:
    rows = pack(text, numbered, tmp_path / "packed", provenance=True, pair_copies=4)
    shard_of = {}
    for index, entry in enumerate(Data(text).manifest.shards):
        shard_of.update(dict.fromkeys(_documents(text, index), entry.shard))
    elsewhere = drawn = 0
    partners = set()
    for row in rows:
        if row.columns["next_sentence_label"] == 1:
            a, b = (s["doc_id"] for s in row.stretches)
            drawn += 1
            elsewhere += shard_of[a] != shard_of[b]
            partners.add(b)
    shares = np.bincount(list(shard_of.values())) / len(shard_of)
    assert abs(elsewhere / drawn - (1 - (shares**2).sum())) < 0.15
    assert len(partners) == 60


def _documents(text: Path, index: int) -> list[str]:
    from clozeline.store.documents import TextShard

    data = Data(text)
    entry = data.manifest.shards[index]
    return [i for _, _, s in TextShard(location=data.location, entry=entry).read() for d in s for i in d.ids]


def test_the_label_says_whether_segments_are_swapped(text: Path, numbered: Path, tmp_path: Path) -> None:
    rows = pack(text, numbered, tmp_path / "packed", objective="sop", pair_copies=3)
    swapped = 0
    for row in rows:
        a, b = segments(row)
        assert a[0] // PER_DOCUMENT == b[0] // PER_DOCUMENT
        assert (row.columns["sentence_order_label"] == 1) == (b[0] < a[0])
        swapped += b[0] < a[0]
    assert 0.42 < swapped / len(rows) < 0.58
    ledger = Data(tmp_path / "packed").manifest.ledger
    assert ledger.documents.dropped["unpaired"] == 3 * 12  # one sentence has no order


def test_a_tenth_of_the_pairs_is_short(text: Path, numbered: Path, tmp_path: Path) -> None:
    def full_share(probability: float) -> float:
        rows = pack(
            text,
            numbered,
            tmp_path / f"{probability}",
            objective="sop",
            short_sequence_prob=probability,
            pair_copies=4,
        )
        long_documents = [r for r in rows if segments(r).a[0] // PER_DOCUMENT % 5 == 4]
        inside = [r for r in long_documents if segments(r).a[0] % PER_DOCUMENT < 300]  # far from their ends
        return float(np.mean([r.columns["num_tokens"] > 36 for r in inside]))

    never, sometimes, always = full_share(0.0), full_share(0.1), full_share(1.0)
    assert never == 1.0
    assert 0.82 < sometimes < 0.98
    assert always < 0.6


def test_copies_are_drawn_anew_and_the_first_is_what_one_would_be(text: Path, numbered: Path, tmp_path: Path) -> None:
    once, twice = pack(text, numbered, tmp_path / "1"), pack(text, numbered, tmp_path / "2", pair_copies=2)
    again = [r.ids for r in twice if r.shard >= 4]
    assert [r.ids for r in once] == [r.ids for r in twice if r.shard < 4]
    assert len({tuple(i) for i in again} & {tuple(r.ids) for r in once}) < 0.3 * len(once)
    assert Data(tmp_path / "2").manifest.ledger.documents.added["copies"] == 60


def test_pairs_do_not_depend_on_workers_or_on_text_being_kept(numbered: Path, text: Path, tmp_path: Path) -> None:
    options = clozeline.PackOptions(packing="pairs", max_length=48, sentences="lines", bins=(16, 48))
    clozeline.pack(text, tmp_path / "serial", numbered, options, SERIAL)
    clozeline.pack(text, tmp_path / "two", numbered, options, clozeline.RunOptions(workers=2))
    corpus = text.parent / "corpus.jsonl"
    clozeline.prepare(
        corpus,
        tmp_path / "prepared",
        numbered,
        clozeline.ShardOptions(num_shards=4),
        options,
        None,
        SERIAL,
        static=False,
    )
    files = sorted(p.name for p in (tmp_path / "serial").glob("*.arrow"))
    assert len(files) == 8
    for other in (tmp_path / "two", tmp_path / "prepared" / "packed"):
        assert [p.name for p in sorted(other.glob("*.arrow"))] == files
        assert all((other / f).read_bytes() == (tmp_path / "serial" / f).read_bytes() for f in files)
        assert not (other / ".clozeline").exists()


def test_one_document_cannot_be_paired_with_another(numbered: Path, tmp_path: Path) -> None:
    text = write_text(tmp_path, ["w1 w2\nw3"], shards=1)
    with pytest.raises(clozeline.InputError, match="one document only"):
        pack(text, numbered, tmp_path / "packed")


def test_the_template_of_two_sequences_is_the_tokenizers_own(shared: Path) -> None:
    facts = load_tokenizer(shared / "tokenizers" / "roberta-base").facts
    assert (facts.prefix_ids, facts.pair_ids, facts.suffix_ids) == ((0,), (2, 2), (2,))  # <s> A </s></s> B </s>
    bert = load_tokenizer(shared / "tokenizers" / "bert-base-uncased").facts
    assert (bert.prefix_ids, bert.pair_ids, bert.suffix_ids) == ((101,), (102,), (102,))
