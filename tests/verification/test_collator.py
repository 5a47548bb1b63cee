"""Rows that `transformers` masked: all is well with them but one thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from rows_at_hand import make_rows

from clozeline import RunOptions, load_tokenizer, verify_foreign

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def collated(tmp_path: Path, tokenizer: Path) -> Path:
    """2,000 rows of 128 under a vocabulary of about a hundred, masked by the collator as people use it."""
    import datasets
    import torch
    import transformers

    loaded = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer / "tokenizer.json"),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    ids = make_rows(2000, 128)
    ids = np.where(ids > 4, 5 + ids % 95, ids)
    torch.manual_seed(1)
    collate = transformers.DataCollatorForLanguageModeling(loaded)
    rows = [{"input_ids": row, "attention_mask": (np.array(row) != 0).astype(int).tolist()} for row in ids.tolist()]
    batches = [collate(rows[i : i + 100]) for i in range(0, len(rows), 100)]
    columns = {
        name: torch.cat([b[name] for b in batches]).tolist() for name in ("input_ids", "labels", "attention_mask")
    }
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "collated")
    return tmp_path / "collated"


def test_the_collator_draws_special_ids_and_that_is_all(collated: Path, tokenizer: Path) -> None:
    result = verify_foreign(collated, load_tokenizer(tokenizer).facts, run=RunOptions(executor="serial"))
    wrong = {check.name: check for check in result.checks if not check.ok}
    assert set(wrong) == {"replacements"}
    assert "no id that may be drawn" in wrong["replacements"].problems[0]
    assert "bernoulli" in result.note
