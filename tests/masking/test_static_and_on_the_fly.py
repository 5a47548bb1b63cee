"""Static copy k is what masking on the fly gives in epoch k, bit for bit; and `verify` says that it is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mask_schemes import SCHEMES

from clozeline import (
    Masking,
    MaskOptions,
    PackOptions,
    RunOptions,
    ShardOptions,
    mask,
    pack,
    prepare,
    shard,
    token_counts,
    verify,
)
from clozeline.errors import ConfigError, DataError
from clozeline.store.dataset import Data

SERIAL = RunOptions(executor="serial")


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    place = tmp_path_factory.mktemp("packed")
    lines = [f"document {i} " + " ".join(f"word{(i * 7 + k) % 23}" for k in range(i % 9 * 9)) for i in range(90)]
    (place / "corpus.txt").write_text("\n".join(lines) + "\n")
    shard(place / "corpus.txt", place / "text", ShardOptions(num_shards=2), SERIAL)
    pack(place / "text", place / "packed", tokenizer, PackOptions(max_length=64), SERIAL)
    return place / "packed"


@pytest.mark.parametrize("name", SCHEMES)
def test_static_equals_on_the_fly(packed: Path, tmp_path: Path, name: str) -> None:
    rule = SCHEMES[name]
    mask(packed, tmp_path / "masked", MaskOptions(seed=9, copies=2, rule=rule, allow_lower_rate=True), SERIAL)
    counts = token_counts(packed, SERIAL) if rule.replacement == "frequency" else None
    transform = Masking(seed=9, rule=rule, counts=counts, allow_lower_rate=True)
    source, static = Data(packed), Data(tmp_path / "masked")
    for index, entry in enumerate(static.manifest.shards):
        rows = np.random.default_rng(index).permutation(entry.rows)
        batch = {"input_ids": source.shard(entry.shard).take("input_ids", rows)}
        shards = np.full(len(rows), entry.shard)
        made = transform(batch, shards=shards, rows=rows, epoch=entry.copy, meta=source.metadata)
        for column in ("input_ids", "labels"):
            there = static.shard(index).take(column, rows)
            assert there.dtype == made[column].dtype
            assert (there == made[column]).all()
    result = verify(tmp_path / "masked", against=packed, run=SERIAL)
    assert [c for c in result.checks if not c.ok] == []


def test_a_changed_document_changes_masks_in_its_own_shard_only(tmp_path: Path, tokenizer: Path) -> None:
    texts = [f"document {i} " + "abc def " * 20 for i in range(40)]
    made = []
    for number, change in enumerate(("", "x")):
        source = tmp_path / f"{number}.txt"
        source.write_text("\n".join([texts[0][:-1] + change + " ", *texts[1:]]) + "\n")
        prepare(
            source,
            tmp_path / str(number),
            tokenizer,
            ShardOptions(num_shards=4),
            PackOptions(max_length=64),
            run=SERIAL,
        )
        made.append(Data(tmp_path / str(number) / "masked"))
    same = [a.sha256 == b.sha256 for a, b in zip(made[0].manifest.shards, made[1].manifest.shards, strict=True)]
    digests = [d.location.read(e.file)[-2000:] for d in made for e in d.manifest.shards]
    assert digests[0] != digests[4]
    assert digests[1:4] == digests[5:8], same


def test_masked_rows_are_not_masked_again(packed: Path, tmp_path: Path) -> None:
    mask(packed, tmp_path / "masked", MaskOptions(), SERIAL)
    with pytest.raises(DataError, match="packed"):
        mask(tmp_path / "masked", tmp_path / "again", MaskOptions(), SERIAL)
    data = Data(tmp_path / "masked")
    at = np.arange(2)
    batch = {"input_ids": data.shard(0).take("input_ids", at)}
    with pytest.raises(DataError, match="on the fly needs packed rows"):
        Masking(seed=1)(batch, shards=at * 0, rows=at, epoch=0, meta=data.metadata)


def test_rules_that_do_not_fit_are_refused_before_any_row_is_read(packed: Path, tmp_path: Path) -> None:
    for rule, message in (
        (replace(SCHEMES["capped"], max_predictions=2), "lowers the rate"),
        (replace(SCHEMES["protected"], never_draw=((5, 500),)), "vocabulary ends at 109"),
        (replace(SCHEMES["protected"], never_draw=((5, 109),)), "leaves no ordinary id"),
    ):
        with pytest.raises(ConfigError, match=message):
            mask(packed, tmp_path / "masked", MaskOptions(rule=rule), SERIAL)
        assert not (tmp_path / "masked").exists()
