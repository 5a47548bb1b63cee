"""Documents of one row that must not see each other, in each of the three ways to keep them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import SERIAL, write_text

import clozeline
from clozeline.streaming.boundaries import BlockDiagonalMask, ResetPositions, Unpadded, document_index, position_ids
from clozeline.streaming.chain import Chain

VOCABULARY = 305


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory, words: Path) -> Path:
    """Rows of 32 with several documents each, some padding."""
    place = tmp_path_factory.mktemp("boundaries")
    texts = [" ".join(f"w{(11 * d + t) % 300}" for t in range(3 + d * 5 % 17)) for d in range(30)]
    text = write_text(place, texts)
    options = clozeline.PackOptions(packing="best-fit", max_length=32, boundaries=True)
    clozeline.pack(text, place / "packed", words, options, SERIAL)
    return place / "packed"


def batch_of(packed: Path, transform: Any) -> dict[str, torch.Tensor]:
    stream = clozeline.TokenStream(packed, batch_size=4, shuffle=None, transform=transform)
    return dict(next(iter(stream)))


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=4), pad=st.integers(0, 3)
)
def test_positions_and_documents_of_a_row(rows: list[list[int]], pad: int) -> None:
    length = max(map(sum, rows)) + pad
    lengths = np.array([[*row, *[0] * (6 - len(row))] for row in rows], np.uint16)
    for row, index, position in zip(
        rows, document_index(lengths, length).tolist(), position_ids(lengths, length).tolist(), strict=True
    ):
        rest = length - sum(row)
        assert index == [d for d, n in enumerate(row) for _ in range(n)] + [len(row)] * rest
        assert position == [t for n in row for t in range(n)] + [0] * rest


class VaryingLengthModel(torch.nn.Module):
    """Embeddings and one layer of attention over a flat sequence, document by document, as kernels for varying lengths do it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(VOCABULARY, 16)
        self.positions = torch.nn.Embedding(64, 16)
        self.mix = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, VOCABULARY)

    def forward(self, ids: torch.Tensor, position_ids: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        hidden = self.words(ids) + self.positions(position_ids)
        parts = []
        for start, stop in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True):
            q, k, v = self.mix(hidden[start:stop]).chunk(3, -1)
            parts.append(torch.softmax(q @ k.T / 4, -1) @ v)
        logits: torch.Tensor = self.out(torch.cat(parts))
        return logits


def changed_by_perturbing(logits: Any, ids: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Where logits change when the ids at `first` are replaced: bool, of the shape of `ids`."""
    other = torch.where(first, (ids + 7) % VOCABULARY, ids)
    with torch.no_grad():
        changed: torch.Tensor = (logits(ids) != logits(other)).any(-1)
    return changed


@pytest.mark.parametrize(("form", "attention"), [("bool", "sdpa"), ("additive", "eager"), ("additive", "sdpa")])
def test_no_logit_crosses_the_block_diagonal_mask(packed: Path, form: Any, attention: str) -> None:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        attn_implementation=attention,
    )
    model = BertForMaskedLM(config).eval()
    apart = batch_of(packed, Chain(BlockDiagonalMask(form=form), Keep("document_lengths")))
    lengths = apart["kept"].numpy()
    index = torch.from_numpy(document_index(lengths, 32))
    assert (index.max(1).values > 0).all()
    first = index == 0

    def logits(ids: torch.Tensor) -> torch.Tensor:
        mask, positions = apart["attention_mask"], apart["position_ids"]
        found: torch.Tensor = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
        return found

    changed = changed_by_perturbing(logits, apart["input_ids"], first)
    assert changed[first].any()
    assert not changed[~first].any()
    assert torch.isfinite(logits(apart["input_ids"])).all()

    # The same model without it: the test can fail.
    plain = batch_of(packed, None)

    def crossing(ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model(input_ids=ids, attention_mask=plain["attention_mask"]).logits
        return found

    assert changed_by_perturbing(crossing, plain["input_ids"], first)[~first].any()


def test_no_logit_crosses_from_one_document_of_an_unpadded_batch_to_another(packed: Path) -> None:
    batch = batch_of(packed, Unpadded())
    ids, starts = batch["input_ids"], batch["cu_seqlens"]
    assert ids.ndim == 1
    assert (int(starts[0]), int(starts[-1])) == (0, len(ids))
    assert int(batch["max_seqlen"]) == int(starts.diff().max())
    assert "attention_mask" not in batch
    assert (starts.dtype, batch["max_seqlen"].dtype) == (torch.int32, torch.int32)
    model = VaryingLengthModel()
    first = torch.arange(len(ids)) < starts[1]
    changed = changed_by_perturbing(lambda i: model(i, batch["position_ids"], starts), ids, first)
    assert changed[first].all()
    assert not changed[~first].any()


def test_no_logit_crosses_where_a_model_finds_documents_by_their_positions(packed: Path) -> None:
    batch = batch_of(packed, ResetPositions())
    ids, positions = batch["input_ids"], batch["position_ids"]
    model = VaryingLengthModel()

    def starts_of(row: int) -> torch.Tensor:
        begins = torch.nonzero(positions[row] == 0)[:, 0]
        return torch.cat([begins, torch.tensor([32])])

    def logits(given_ids: torch.Tensor) -> torch.Tensor:
        return torch.stack([model(given_ids[r], positions[r], starts_of(r)) for r in range(len(ids))])

    first = torch.stack([torch.arange(32) < starts_of(r)[1] for r in range(len(ids))])
    assert (positions == 0).sum() > len(ids) * 2
    changed = changed_by_perturbing(logits, ids, first)
    assert changed[first].all()
    assert not changed[~first].any()


def test_unpadded_batches_hold_the_same_tokens_and_labels(packed: Path) -> None:
    masking = clozeline.Masking(seed=3)
    rows = batch_of(packed, masking)
    flat = batch_of(packed, Chain(masking, Unpadded()))
    there = rows["attention_mask"].bool()
    assert torch.equal(flat["input_ids"], rows["input_ids"][there])
    assert torch.equal(flat["labels"], rows["labels"][there])


@pytest.mark.parametrize("how", [{"batch_size": None}, {"batch_size": 7, "tail": "pad"}])
def test_unpadded_batches_need_whole_batches(packed: Path, how: dict[str, Any]) -> None:
    transform = Chain(clozeline.Masking(seed=3), Unpadded())
    with pytest.raises(clozeline.ConfigError, match="unpadded batches have no rows"):
        clozeline.TokenStream(packed, transform=transform, **how)


def test_a_chain_knows_its_links() -> None:
    one, other = (Chain(clozeline.Masking(seed=s), BlockDiagonalMask()) for s in (1, 2))
    assert one.columns == ("document_lengths",)
    assert one.identity() == Chain(clozeline.Masking(seed=1), BlockDiagonalMask()).identity() != other.identity()


def test_rows_without_boundaries_are_refused(words: Path, tmp_path: Path) -> None:
    text = write_text(tmp_path, ["w1 w2 w3"] * 9)
    clozeline.pack(text, tmp_path / "packed", words, clozeline.PackOptions(max_length=8), SERIAL)
    for transform in (ResetPositions(), BlockDiagonalMask(), Unpadded()):
        with pytest.raises(clozeline.DataError, match="document_lengths"):
            batch_of(tmp_path / "packed", transform)


class Keep:
    """Keeps a column that other transforms need from being left out of the batch."""

    def __init__(self, name: str) -> None:
        self.columns: tuple[str, ...] = ()
        self._name = name

    def __call__(self, batch: dict[str, Any], **identity: Any) -> dict[str, Any]:
        return {**batch, "kept": batch[self._name]}
