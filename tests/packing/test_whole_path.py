"""Rows of every scheme through every later stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packed import SERIAL, read_rows

import clozeline
from clozeline.store.dataset import Data

SCHEMES: dict[str, dict[str, Any]] = {
    "concat": {"boundaries": True},
    "sentences": {"sentences": "lines", "boundaries": True},
    "doc-sentences": {"sentences": "lines"},
    "documents": {"stride": 4, "min_tokens": 3, "boundaries": True},
    "best-fit": {"add_prefix": True, "boundaries": True},
    "nsp": {"packing": "pairs", "sentences": "lines", "seed": 2},
    "sop": {"packing": "pairs", "sentences": "lines", "objective": "sop"},
}


@pytest.fixture(scope="module")
def corpus_of_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty documents of a few lines each."""
    path = tmp_path_factory.mktemp("lines") / "corpus.txt"
    documents = [
        "\n".join(
            " ".join(f"w{(31 * d + 7 * line + t) % 300}" for t in range(2 + (d + line) % 9))
            for line in range(1 + d % 7)
        )
        for d in range(40)
    ]
    path.write_text("\n\n".join(documents) + "\n")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, words: Path) -> Path:
    """A BERT of a few thousand weights for the same vocabulary."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForMaskedLM(BertConfig(vocab_size=305, max_position_embeddings=64, **sizes)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(words).save_pretrained(folder)
    return folder


def options_of(scheme: str, **more: Any) -> clozeline.PackOptions:
    return clozeline.PackOptions(**{"packing": scheme, "max_length": 24, **SCHEMES[scheme], **more})


TEXT = clozeline.ShardOptions(num_shards=3, read=clozeline.ReadOptions(documents=("blank-lines",)))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_masks_verify_stream_and_evaluate(
    scheme: str, corpus_of_lines: Path, words: Path, model: Path, tmp_path: Path
) -> None:
    masks = clozeline.MaskOptions(seed=9, copies=2)
    clozeline.prepare(corpus_of_lines, tmp_path, words, TEXT, options_of(scheme), masks, SERIAL)
    packed, masked = tmp_path / "packed", tmp_path / "masked"

    assert clozeline.verify(packed, run=SERIAL).ok
    assert clozeline.verify(masked, against=packed, run=SERIAL).ok

    static = clozeline.TokenStream(masked, batch_size=1, shuffle=None, copy=1)
    on_the_fly = clozeline.TokenStream(packed, batch_size=1, shuffle=None, transform=clozeline.Masking(seed=9), epoch=1)
    rows = 0
    for one, other in zip(static, on_the_fly, strict=True):
        assert one.keys() == other.keys()
        assert all((one[name] == other[name]).all() for name in one)
        rows += 1
    assert rows == Data(packed).manifest.rows
    assert ("token_type_ids" in one) == (scheme in ("nsp", "sop"))
    assert ("next_sentence_label" in one) == (scheme == "nsp")
    assert ("sentence_order_label" in one) == (scheme == "sop")

    found = clozeline.assess(masked, model, clozeline.AssessOptions(device="cpu"))
    assert found.result.rows == 2 * rows
    assert 4 < found.result.loss < 8  # about log(305) for a model that knows nothing


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_pass_and_three_stages_make_the_same_bytes(
    scheme: str, corpus_of_lines: Path, words: Path, tmp_path: Path
) -> None:
    options = options_of(scheme, provenance=True)
    if scheme in ("doc-sentences", "documents", "nsp", "sop"):
        options = options_of(scheme, provenance=True, bins=(12, 24))
    masks = clozeline.MaskOptions(seed=9, copies=2)
    clozeline.prepare(corpus_of_lines, tmp_path / "one", words, TEXT, options, masks, SERIAL)
    clozeline.shard(corpus_of_lines, tmp_path / "text", TEXT, SERIAL)
    clozeline.pack(tmp_path / "text", tmp_path / "packed", words, options, clozeline.RunOptions(workers=2))
    clozeline.mask(tmp_path / "packed", tmp_path / "masked", masks, SERIAL)
    for stage in ("packed", "masked"):
        one, three = tmp_path / "one" / stage, tmp_path / stage
        names = sorted(str(p.relative_to(three)) for p in three.rglob("*") if p.is_file())
        assert names == sorted(str(p.relative_to(one)) for p in one.rglob("*") if p.is_file())
        assert Data(one).manifest.sha256 == Data(three).manifest.sha256
        for name in names:
            if name.endswith((".arrow", ".parquet")):
                assert (one / name).read_bytes() == (three / name).read_bytes(), name


@pytest.mark.parametrize("scheme", SCHEMES)
def test_datasets_reads_the_rows(scheme: str, corpus_of_lines: Path, words: Path, tmp_path: Path) -> None:
    import datasets

    clozeline.prepare(corpus_of_lines, tmp_path, words, TEXT, options_of(scheme), None, SERIAL)
    for stage in ("packed", "masked"):
        loaded = datasets.load_from_disk(str(tmp_path / stage))
        rows = read_rows(tmp_path / stage)
        assert len(loaded) == len(rows)
        for row, ours in zip(loaded, rows, strict=True):
            assert row.keys() == ours.columns.keys()
            assert all(np.array_equal(row[name], ours.columns[name]) for name in row)


def test_a_row_goes_to_the_shortest_bin_that_holds_it(corpus_of_lines: Path, words: Path, tmp_path: Path) -> None:
    def pack(name: str, **options: Any) -> Path:
        given = clozeline.PackOptions(packing="documents", max_length=24, provenance=True, boundaries=True, **options)
        clozeline.prepare(corpus_of_lines, tmp_path / name, words, TEXT, given, clozeline.MaskOptions(seed=1), SERIAL)
        return tmp_path / name

    plain, binned = pack("plain"), pack("binned", bins=(8, 16, 24))
    entries = Data(binned / "packed").manifest.shards
    assert [e.shard for e in entries] == list(range(9))
    assert [e.row_length for e in entries] == [8] * 3 + [16] * 3 + [24] * 3
    rows = read_rows(binned / "packed")
    for row in rows:
        length, used = len(row.ids), row.columns["num_tokens"]
        assert used <= length
        assert length == 8 or used > length - 8

    def contents(found: Any) -> list[tuple[str, tuple[int, ...]]]:
        return sorted((r.stretches[0]["doc_id"], tuple(r.ids[: r.columns["num_tokens"]])) for r in found)

    assert contents(rows) == contents(read_rows(plain / "packed"))
    assert clozeline.verify(binned / "masked", against=binned / "packed", run=SERIAL).ok
    totals = [Data(p / "packed").manifest.ledger for p in (plain, binned)]
    assert totals[0].to_json()["tokens"] == totals[1].to_json()["tokens"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"packing": "nonsense"}, "packing is 'nonsense'"),
        ({"packing": "concat", "stride": 2}, "stride means nothing to packing concat"),
        ({"packing": "best-fit", "remainder": "drop"}, "remainder means nothing"),
        ({"packing": "pairs", "boundaries": True}, "boundaries means nothing"),
        ({"packing": "documents", "bins": (64, 32)}, "longer than the one before"),
        ({"packing": "documents", "bins": (64, 128)}, "make them equal"),
        ({"min_document_tokens": 9, "max_document_tokens": 8}, "less than min_document_tokens"),
        ({"packing": "pairs", "short_sequence_prob": 1.5}, "between 0 and 1"),
        ({"packing": "sentences", "sentences": "guess"}, "sentences is 'guess'"),
        ({"max_length": 4}, "between 8 and"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(clozeline.ConfigError, match=what):
        clozeline.PackOptions(**options)


def test_a_stride_as_long_as_a_row_is_refused(words: Path, corpus_of_lines: Path, tmp_path: Path) -> None:
    refuse: Callable[..., Any] = clozeline.prepare
    with pytest.raises(clozeline.ConfigError, match="must repeat fewer"):
        refuse(
            corpus_of_lines, tmp_path, words, TEXT, clozeline.PackOptions(packing="documents", max_length=8, stride=6)
        )
