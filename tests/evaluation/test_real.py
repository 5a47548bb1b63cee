"""A published model on English text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import transformers
from tiny_models import plain_loss, rows_of

import clozeline


@pytest.mark.shared
def test_a_published_model_has_the_plain_loss_on_english(shared: Path, tmp_path: Path) -> None:
    with (shared / "corpora" / "en_20mb.txt").open("rb") as file:
        (tmp_path / "corpus.txt").write_bytes(file.read(60_000).rsplit(b"\n\n", 1)[0] + b"\n")
    clozeline.prepare(
        tmp_path / "corpus.txt",
        tmp_path,
        shared / "tokenizers" / "bert-base-uncased",
        clozeline.ShardOptions(num_shards=2),
        mask_options=clozeline.MaskOptions(seed=3),
        run=clozeline.RunOptions(executor="serial"),
    )
    folder = shared / "models" / "splade-tiny-BertForMaskedLM"
    found = clozeline.assess(tmp_path / "masked", folder, clozeline.AssessOptions(device="cpu", batch_rows=4))
    rows = rows_of(tmp_path / "masked")
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert found.result.loss == pytest.approx(plain_loss(model, rows), rel=1e-6)
    assert found.result.rows == len(rows["row"]) > 10
    mask, random, keep = found.result.by["action"]
    assert keep.loss < mask.loss < random.loss
    share = found.result.selected_tokens / np.isin(rows["input_ids"], (0, 101, 102), invert=True).sum()
    assert 0.14 < share < 0.16
