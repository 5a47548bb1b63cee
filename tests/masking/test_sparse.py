"""Sparse labels give the rows that dense labels give, on less disk, and are verified as strictly."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from mask_schemes import SCHEMES

import clozeline
from clozeline import (
    MaskOptions,
    MaskRule,
    PackOptions,
    RunOptions,
    ShardOptions,
    TokenStream,
    mask,
    pack,
    prepare,
    shard,
    verify,
)
from clozeline.errors import ConfigError, DataError
from clozeline.store.dataset import Data
from clozeline.store.location import Location
from clozeline.store.shards import TokenShard
from clozeline.store.sparse import SparseShard

SERIAL = RunOptions(executor="serial")
SPARSE = MaskOptions(seed=5, copies=3, labels="sparse")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    """Packed rows of 32 in 3 shards, and three maskings of them, dense and sparse."""
    place = tmp_path_factory.mktemp("sparse")
    lines = [f"document {i} " + " ".join(f"word{(i * 7 + k) % 23}" for k in range(i % 9 * 3)) for i in range(80)]
    (place / "corpus.txt").write_text("\n".join(lines) + "\n")
    shard(place / "corpus.txt", place / "text", ShardOptions(num_shards=3), SERIAL)
    pack(place / "text", place / "packed", tokenizer, PackOptions(max_length=32, boundaries=True), SERIAL)
    mask(place / "packed", place / "dense", MaskOptions(seed=5, copies=3), SERIAL)
    mask(place / "packed", place / "sparse", SPARSE, SERIAL)
    return place


@pytest.fixture
def damaged(work: Path, tmp_path: Path) -> Path:
    shutil.copytree(work / "sparse", tmp_path / "sparse")  # files of their own: no hard links
    return tmp_path / "sparse"


def files(folder: Path) -> dict[str, bytes]:
    there = (p for p in folder.rglob("*") if p.is_file() and p.name != "run.json")
    return {str(p.relative_to(folder)): p.read_bytes() for p in there}


def failed(folder: Path, *, digests: bool = True) -> set[str]:
    return {check.name for check in verify(folder, digests=digests, run=SERIAL).checks if not check.ok}


@pytest.mark.parametrize("shuffle", [None, "global", "blocks"])
@pytest.mark.parametrize("copy", ["all", "epoch", 0, 1, 2])
def test_streams_of_sparse_and_dense_are_equal(work: Path, copy: str | int, shuffle: str | None) -> None:
    streams = [
        TokenStream(work / name, batch_size=7, shuffle=shuffle, seed=3, copy=copy, tail="pad", epoch=1)
        for name in ("dense", "sparse")
    ]
    rows = 0
    for dense, sparse in zip(*streams, strict=True):
        assert list(dense) == list(sparse)
        for name in dense:
            assert dense[name].dtype == sparse[name].dtype
            assert (dense[name] == sparse[name]).all(), name
        rows += len(dense["labels"])
    assert rows >= Data(work / "dense").manifest.rows // 3


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_fits_and_reads_as_dense(work: Path, tmp_path: Path, name: str) -> None:
    for labels in ("dense", "sparse"):
        options = MaskOptions(seed=9, copies=2, rule=SCHEMES[name], allow_lower_rate=True, labels=labels)
        mask(work / "packed", tmp_path / labels, options, SERIAL)
    dense, sparse = Data(tmp_path / "dense"), Data(tmp_path / "sparse")
    for index, entry in enumerate(dense.manifest.shards):
        one, other = dense.shard(index), sparse.shard(index)
        assert isinstance(other, SparseShard)
        assert one.columns() == other.columns()
        assert one.types == other.types
        assert (other.entry.rows, other.entry.tokens, other.entry.row_length) == (
            entry.rows,
            entry.tokens,
            entry.row_length,
        )
        rows = np.random.default_rng(index).permutation(entry.rows)
        for column in one.columns():
            assert one.dtype(column) == other.dtype(column)
            assert (one.take(column, rows) == other.take(column, rows)).all()
        for a, b in zip(one.batches(), other.batches(), strict=True):
            assert all((a[column] == b[column]).all() for column in a)
    result = verify(tmp_path / "sparse", against=work / "packed", run=SERIAL)
    assert [check for check in result.checks if not check.ok] == []


@pytest.mark.parametrize("rule", [MaskRule(mask_prob=0.0), MaskRule(mask_prob=1.0, max_span=256, unit="span")])
def test_no_and_all_positions_selected(work: Path, tmp_path: Path, rule: MaskRule) -> None:
    for labels in ("dense", "sparse"):
        mask(work / "packed", tmp_path / labels, MaskOptions(rule=rule, labels=labels), SERIAL)
    dense, sparse = Data(tmp_path / "dense").shard(0), Data(tmp_path / "sparse").shard(0)
    rows = np.arange(dense.entry.rows)
    for column in ("labels", "input_ids"):
        assert (dense.take(column, rows) == sparse.take(column, rows)).all()


def test_rows_of_several_lengths(work: Path, tmp_path: Path, tokenizer: Path) -> None:
    pack(
        work / "text",
        tmp_path / "packed",
        tokenizer,
        PackOptions(packing="documents", max_length=64, bins=(16, 64)),
        SERIAL,
    )
    for labels in ("dense", "sparse"):
        mask(tmp_path / "packed", tmp_path / labels, MaskOptions(seed=1, copies=2, labels=labels), SERIAL)
    streams = [TokenStream(tmp_path / name, batch_size=8, seed=1, epoch=0) for name in ("dense", "sparse")]
    for dense, sparse in zip(*streams, strict=True):
        assert all((dense[name] == sparse[name]).all() for name in dense)
    assert failed(tmp_path / "sparse") == set()


def test_bytes_depend_neither_on_workers_nor_on_links_nor_on_interruptions(work: Path, tmp_path: Path) -> None:
    mask(work / "packed", tmp_path / "two", SPARSE, RunOptions(executor="processes", workers=2))
    assert files(tmp_path / "two") == files(work / "sparse")
    shutil.copytree(work / "sparse", tmp_path / "again")
    result = mask(work / "packed", tmp_path / "again", SPARSE, RunOptions(executor="serial", resume=True))
    assert result.nothing_to_do
    mask(work / "packed", tmp_path / "again", SPARSE, RunOptions(executor="serial", force=True))
    assert files(tmp_path / "again") == files(work / "sparse")
    assert failed(work / "packed") == set()  # replacing links has left what they led to alone


def test_resuming_puts_a_missing_raw_file_back(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clozeline.store.output import Output

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Output, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            mask(work / "packed", tmp_path / "dest", SPARSE, SERIAL)
    raw = Data(work / "packed").manifest.shards[1].file
    (tmp_path / "dest" / raw).unlink()
    mask(work / "packed", tmp_path / "dest", SPARSE, RunOptions(executor="serial", resume=True))
    assert files(tmp_path / "dest") == files(work / "sparse")


def test_raw_rows_are_links_where_they_can_be_and_copies_elsewhere(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = Data(work / "packed").manifest.shards[0].file
    assert (work / "packed" / raw).samefile(work / "sparse" / raw)

    def refused(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "link", refused)
    mask(work / "packed", tmp_path / "copied", SPARSE, SERIAL)
    assert not (work / "packed" / raw).samefile(tmp_path / "copied" / raw)
    assert files(tmp_path / "copied") == files(work / "sparse")
    shutil.copytree(work / "packed", tmp_path / "packed")
    change(tmp_path / "packed" / raw, -200)
    with pytest.raises(DataError, match="sha256"):
        mask(tmp_path / "packed", tmp_path / "other", SPARSE, SERIAL)


def change(path: Path, at: int) -> None:
    body = bytearray(path.read_bytes())
    body[at] ^= 1
    path.write_bytes(body)


def place_of(folder: Path, column: str) -> tuple[Path, int]:
    """The first masked file, and where in it the first value of a column stands."""
    entry = Data(folder).manifest.shards[0]
    inside = TokenShard(Location(folder), entry)
    return folder / entry.file, int(inside._starts[column][0]) * inside.dtype(column).itemsize


def test_a_right_data_set_passes(work: Path) -> None:
    assert failed(work / "sparse") == set()


@pytest.mark.parametrize("column", ["masked_ids", "positions", "num_selected"])
def test_a_changed_value_is_found_by_digest_and_without(damaged: Path, column: str) -> None:
    change(*place_of(damaged, column))
    assert "digests" in failed(damaged)
    assert failed(damaged, digests=False) & {"replay", "layout"}


def test_a_position_outside_the_row_is_found_and_never_read(damaged: Path) -> None:
    path, at = place_of(damaged, "positions")
    change(path, at + 1)  # 256 more
    assert "layout" in failed(damaged, digests=False)
    with pytest.raises(DataError, match="is selected, a row has 32"):
        Data(damaged).shard(0).take("labels", np.arange(5))


def test_a_changed_raw_file_is_found(damaged: Path, work: Path) -> None:
    raw = Data(damaged).manifest.raw[0]
    change(damaged / raw.file, -200)
    assert "digests" in failed(damaged)
    with pytest.raises(DataError, match="sha256"):
        Data(damaged, digests=True).shard(0)
    (damaged / raw.file).unlink()
    assert {"digests", "layout"} <= failed(damaged)


def test_raw_rows_of_other_work_are_refused(damaged: Path) -> None:
    first, second = Data(damaged).manifest.raw[:2]
    shutil.copy(damaged / second.file, damaged / first.file)
    assert {"digests", "layout"} <= failed(damaged)
    with pytest.raises(DataError):
        Data(damaged).shard(0)


def test_dense_data_sets_say_nothing_of_labels(work: Path) -> None:
    dense = Data(work / "dense").manifest
    assert "labels" not in dense.metadata.config
    assert '"raw"' not in dense.to_file()
    assert Data(work / "sparse").metadata.config["labels"] == "sparse"


def test_a_run_in_one_go_refuses(work: Path, tmp_path: Path, tokenizer: Path) -> None:
    with pytest.raises(ConfigError, match="--dynamic"):
        prepare(work / "corpus.txt", tmp_path / "out", tokenizer, mask_options=SPARSE, run=SERIAL)
    with pytest.raises(ConfigError, match="labels is 'thin'"):
        MaskOptions(labels="thin")


def test_datasets_reads_the_sparse_columns(work: Path) -> None:
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_from_disk(str(work / "sparse"))
    assert loaded.column_names == ["num_selected", "positions", "masked_ids"]
    assert len(loaded) == Data(work / "sparse").manifest.rows


def test_a_remote_data_set_reads_the_same(work: Path, tmp_path: Path) -> None:
    options = clozeline.CacheOptions(folder=tmp_path / "cache")
    url = f"file://{work / 'sparse'}"
    stream = TokenStream(url, batch_size=4, shuffle=None, epoch=0, options=clozeline.StreamOptions(cache=options))
    for dense, sparse in zip(TokenStream(work / "dense", batch_size=4, shuffle=None, epoch=0), stream, strict=True):
        assert all((dense[name] == sparse[name]).all() for name in dense)


def test_evaluation_gives_the_same_loss(work: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    facts = Data(work / "packed").metadata.tokenizer
    assert facts is not None
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=facts.vocabulary_size,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=32,
        )
    )
    dense, sparse = (
        clozeline.evaluate(model, TokenStream(work / n, batch_size=8, shuffle=None, tail="pad", epoch=0))
        for n in ("dense", "sparse")
    )
    assert dense.loss == sparse.loss
