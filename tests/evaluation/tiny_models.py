"""Tiny models with random weights, and the loss computed in the plainest way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from clozeline.store.dataset import Data

LENGTH = 32
_SIZES: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_PLAIN: dict[str, Any] = {**_SIZES, "hidden_size": 16, "max_position_embeddings": LENGTH, "type_vocab_size": 1}
_OFFSET = {**_PLAIN, "max_position_embeddings": LENGTH + 1, "pad_token_id": 0}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", _PLAIN),
    "roberta": ("RobertaConfig", _OFFSET),
    "xlm-roberta": ("XLMRobertaConfig", _OFFSET),
    "camembert": ("CamembertConfig", _OFFSET),
    "distilbert": (
        "DistilBertConfig",
        {"n_layers": 2, "n_heads": 2, "dim": 16, "hidden_dim": 32, "max_position_embeddings": LENGTH},
    ),
    "electra": ("ElectraConfig", {**_PLAIN, "embedding_size": 8}),
    "modernbert": (
        "ModernBertConfig",
        {**_SIZES, "hidden_size": 16, "max_position_embeddings": LENGTH, "pad_token_id": 0},
    ),
    "deberta": (
        "DebertaConfig",
        {**_PLAIN, "type_vocab_size": 0, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    ),
    "deberta-v2": ("DebertaV2Config", {**_PLAIN, "type_vocab_size": 0}),
    "albert": ("AlbertConfig", {**_PLAIN, "embedding_size": 8}),
}


def tiny_model(kind: str, vocabulary_size: int, seed: int = 0) -> Any:
    """A model whose logits are far from equal."""
    torch.manual_seed(seed)
    name, values = CONFIGS[kind]
    special = {"bos_token_id": None, "eos_token_id": None, "cls_token_id": None, "sep_token_id": None}
    config = getattr(transformers, name)(vocab_size=vocabulary_size, initializer_range=0.5, **{**special, **values})
    return transformers.AutoModelForMaskedLM.from_config(config).eval()


class FixedLogits(torch.nn.Module):
    """Gives the same logits everywhere."""

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.vocabulary_size = vocabulary_size
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> tuple[torch.Tensor]:
        return (torch.zeros((*input_ids.shape, self.vocabulary_size)) + self.weight,)


def rows_of(path: Path, copy: int = 0) -> dict[str, np.ndarray]:
    """All rows of a data set in order, int64, with their identity."""
    data = Data(path)
    parts: dict[str, list[np.ndarray]] = {}
    for index, entry in enumerate(data.manifest.shards):
        if entry.copy != copy or not entry.rows:
            continue
        shard = data.shard(index)
        rows = np.arange(entry.rows)
        for name in shard.columns():
            parts.setdefault(name, []).append(shard.take(name, rows).astype(np.int64))
        parts.setdefault("shard", []).append(np.full(entry.rows, entry.shard))
        parts.setdefault("row", []).append(rows)
    return {name: np.concatenate(values) for name, values in parts.items()}


def plain_losses(model: Any, rows: dict[str, np.ndarray]) -> list[np.ndarray]:
    """For each row the losses of its selected tokens: all logits, one row at a time, softmax in float64."""
    losses = []
    with torch.no_grad():
        names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in rows]
        for i, labels in enumerate(rows["labels"]):
            logits = model(**{name: torch.tensor(rows[name][i : i + 1]) for name in names}).logits[0]
            every = torch.nn.functional.cross_entropy(
                logits.double(), torch.tensor(labels), reduction="none", ignore_index=-100
            )
            losses.append(every[torch.tensor(labels) != -100].numpy())
    return losses


def plain_loss(model: Any, rows: dict[str, np.ndarray]) -> float:
    return float(np.concatenate(plain_losses(model, rows)).mean())
