"""What the model reads: rows without padding, documents apart, in batches of near length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import CONFIGS, LENGTH, plain_loss, rows_of, tiny_model

import clozeline
from clozeline.assessment import Batches
from clozeline.evaluation.evaluate import EvaluateOptions
from clozeline.evaluation.sequences import documents_of, in_turn, take, whole_rows
from clozeline.store.dataset import Data

APART = EvaluateOptions(documents_apart=True)
PLL = EvaluateOptions(pseudo_likelihood=True)


def losses_alone(model: Any, rows: dict[str, np.ndarray]) -> dict[tuple[int, int, int], np.ndarray]:
    """Of each document (shard, row, number) the losses of its tokens, the model being given its ids and nothing else."""
    found = {}
    for i, lengths in enumerate(rows["document_lengths"]):
        ends = np.cumsum(lengths)
        for number, (start, end) in enumerate(zip(ends - lengths, ends, strict=True)):
            if start == end:
                continue
            labels = torch.tensor(rows["labels"][i, start:end])
            with torch.no_grad():
                logits = model(torch.tensor(rows["input_ids"][i : i + 1, start:end])).logits[0]
            every = torch.nn.functional.cross_entropy(logits.double(), labels, reduction="none", ignore_index=-100)
            found[int(rows["shard"][i]), int(rows["row"][i]), number] = every[labels != -100].numpy()
    return found


def by_document(result: clozeline.EvaluateResult) -> dict[tuple[int, int, int], tuple[int, float]]:
    table = result.document_scores.columns()
    names = ("shard", "row", "document", "selected", "loss_sum")
    return {(s, r, d): (n, loss) for s, r, d, n, loss in zip(*(table[name].tolist() for name in names), strict=True)}


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_a_document_apart_has_the_loss_that_it_has_alone(kind: str, prepared: Path, vocabulary_size: int) -> None:
    model = tiny_model(kind, vocabulary_size)
    rows = rows_of(prepared / "masked")
    expected = losses_alone(model, rows)
    total = sum(loss.sum() for loss in expected.values()) / sum(map(len, expected.values()))
    for size in (1, 7, 64):
        batches = [{k: v[i : i + size] for k, v in rows.items()} for i in range(0, len(rows["row"]), size)]
        result = clozeline.evaluate(model, batches, APART)
        assert result.loss == pytest.approx(total, rel=1e-6)
        assert result.context == "document"
        found = by_document(result)
        assert {k: n for k, (n, _) in found.items()} == {k: len(loss) for k, loss in expected.items()}
        np.testing.assert_allclose(
            [found[k][1] for k in expected], [loss.sum() for loss in expected.values()], rtol=1e-5, atol=1e-6
        )
    assert abs(plain_loss(model, rows) - result.loss) > 1e-4, "neighbours matter to this model"


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["bert", "distilbert", "electra"])
def test_documents_apart_are_what_a_block_diagonal_mask_shows(
    attention: str, kind: str, prepared: Path, vocabulary_size: int
) -> None:
    """The number belongs to models that were trained so."""
    model = tiny_model(kind, vocabulary_size)
    model.set_attn_implementation(attention)
    transform = clozeline.BlockDiagonalMask(form="additive")
    stream = clozeline.TokenStream(
        prepared / "masked", batch_size=8, transform=transform, shuffle=None, copy=0, epoch=0, tail="even"
    )
    loss, count = 0.0, 0
    with torch.no_grad():
        for batch in stream:
            names = ("input_ids", "attention_mask", "position_ids")
            logits = model(**{name: batch[name] for name in names}).logits.double().flatten(0, 1)
            loss += float(torch.nn.functional.cross_entropy(logits, batch["labels"].flatten(), reduction="sum"))
            count += int((batch["labels"] != -100).sum())
    result = clozeline.evaluate(model, [rows_of(prepared / "masked")], APART)
    assert result.loss == pytest.approx(loss / count, rel=1e-6)


def test_pseudo_likelihoods_of_documents_apart_are_those_of_the_documents(prepared: Path, bert: Any) -> None:
    rows = {name: values[:6] for name, values in rows_of(prepared / "packed").items()}
    facts = Data(prepared / "packed").metadata.tokenizer
    options = EvaluateOptions(pseudo_likelihood=True, documents_apart=True, batch_rows=3)
    found = by_document(clozeline.evaluate(bert, [rows], options, tokenizer=facts))
    alone = []
    for i, lengths in enumerate(rows["document_lengths"]):
        ends = np.cumsum(lengths)
        for start, end in zip((ends - lengths)[lengths > 0], ends[lengths > 0], strict=True):
            single = EvaluateOptions(pseudo_likelihood=True)
            ids = rows["input_ids"][i : i + 1, start:end]
            alone.append(clozeline.evaluate(bert, [{"input_ids": ids}], single, tokenizer=facts))
    sums = [r.row_scores.columns()["loss_sum"][0] for r in alone]
    np.testing.assert_allclose([loss for _, loss in found.values()], sums, rtol=1e-6)


def test_rows_of_many_lengths_are_computed_with_little_padding(prepared: Path, bert: Any) -> None:
    rows = rows_of(prepared / "masked")
    draw = np.random.default_rng(0)
    lengths = draw.integers(2, LENGTH + 1, len(rows["row"]))
    mask = np.arange(LENGTH) < lengths[:, None]
    rows = {**rows, "attention_mask": mask.astype(np.int64), "labels": np.where(mask, rows["labels"], -100)}
    del rows["document_lengths"]
    expected = plain_loss(bert, rows)
    padding = {}
    for together in (4, 64):
        batches = [{k: v[i : i + together] for k, v in rows.items()} for i in range(0, len(mask), together)]
        result = clozeline.evaluate(bert, batches, EvaluateOptions(batch_rows=4))
        assert result.loss == pytest.approx(expected, rel=1e-6)
        padding[together] = result.padding_share
    assert padding[64] < 0.1 < padding[4] < 1 - mask.mean(), padding


def test_padded_rows_are_sorted_across_batches_and_full_ones_are_not(tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join("the word1 " * (i % 13 + 1) for i in range(256)) + "\n")
    for packing in ("documents", "concat"):
        clozeline.prepare(
            tmp_path / "corpus.txt",
            tmp_path / packing,
            tokenizer,
            pack_options=clozeline.PackOptions(max_length=LENGTH, packing=packing),
            run=clozeline.RunOptions(executor="serial"),
        )
    padded, full = (Data(tmp_path / packing / "masked") for packing in ("documents", "concat"))
    options = clozeline.AssessOptions()
    assert Batches(padded, options, 2).batch_rows == 16
    assert Batches(padded, options, 16).batch_rows == padded.manifest.rows // 8 // 16 * 16 > 16, "an eighth of the rows"
    assert Batches(full, options, 2).batch_rows == 2
    assert 1 <= Batches(padded, clozeline.AssessOptions(compute=PLL), 2).batch_rows < 16


def test_documents_apart_need_boundaries(prepared: Path, bert: Any) -> None:
    rows = rows_of(prepared / "masked")
    del rows["document_lengths"]
    with pytest.raises(clozeline.DataError, match="--boundaries"):
        clozeline.evaluate(bert, [rows], APART)


def test_a_selected_token_outside_of_every_document_is_refused(prepared: Path, bert: Any) -> None:
    rows = rows_of(prepared / "masked")
    rows["document_lengths"] = np.minimum(rows["document_lengths"], 1)
    with pytest.raises(clozeline.DataError, match="belongs to no document"):
        clozeline.evaluate(bert, [rows], APART)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=6),
    st.integers(1, 60),
)
def test_sequences_hold_every_position_once_within_the_limit(documents: list[list[int]], positions: int) -> None:
    lengths = np.zeros((len(documents), 4), np.int64)
    for i, row in enumerate(documents):
        lengths[i, : len(row)] = row
    values = np.arange(len(documents) * 20).reshape(-1, 20)
    there = np.arange(20) < lengths.sum(1)[:, None]
    for sequences in (whole_rows(there), documents_of(lengths)):
        order = in_turn(sequences.lengths)
        seen: list[int] = []
        done = 0
        while done < len(order):
            count = take(sequences.lengths[order], done, positions)
            chosen = order[done : done + count]
            cut = sequences.cut(values, chosen, -1)
            assert cut.size <= positions or count == 1
            assert (cut >= 0).sum(1).tolist() == sequences.lengths[chosen].tolist()
            seen += cut[cut >= 0].tolist()
            done += count
        assert sorted(seen) == values[there].tolist()
