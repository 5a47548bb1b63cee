"""The loss is what the formula says: held against the plainest computation there is."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import CONFIGS, LENGTH, FixedLogits, plain_loss, plain_losses, rows_of, tiny_model

import clozeline
from clozeline.evaluation.heads import find_head
from clozeline.store.dataset import Data

SPLIT = sorted({*CONFIGS} - {"albert"})


def in_batches(rows: dict[str, np.ndarray], size: int) -> Any:
    for first in range(0, len(rows["row"]), size):
        yield {name: torch.from_numpy(values[first : first + size]) for name, values in rows.items()}


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_every_architecture_gives_the_plain_loss_in_any_batch_size(
    kind: str, prepared: Path, vocabulary_size: int
) -> None:
    model = tiny_model(kind, vocabulary_size)
    rows = rows_of(prepared / "masked")
    expected = plain_loss(model, rows)
    for size in (1, 2, 7, 64):
        result = clozeline.evaluate(model, in_batches(rows, size))
        assert result.loss == pytest.approx(expected, rel=1e-6)
        assert result.selected_tokens == (rows["labels"] != -100).sum()
        assert result.head == ("selected positions" if kind in SPLIT else "every position")


@pytest.mark.parametrize("kind", SPLIT)
def test_the_head_called_apart_gives_the_models_own_logits(kind: str, vocabulary_size: int) -> None:
    model = tiny_model(kind, vocabulary_size)
    head = find_head(model)
    assert head is not None
    ids = torch.arange(5, 5 + 24).reshape(2, 12)
    with torch.no_grad():
        apart = head(model.base_model(ids)[0].reshape(24, -1)[[3, 20]])
        whole = model(ids).logits.reshape(24, -1)[[3, 20]]
    torch.testing.assert_close(apart, whole, rtol=1e-5, atol=1e-5)
    assert whole.std() > 0.01


def test_equal_logits_give_the_logarithm_of_the_vocabulary(prepared: Path) -> None:
    rows = rows_of(prepared / "masked")
    for size in (50, 115, 30_522):
        result = clozeline.evaluate(
            FixedLogits(size), in_batches({**rows, "labels": np.minimum(rows["labels"], 49)}, 64)
        )
        assert result.loss == pytest.approx(math.log(size), rel=0, abs=4e-15)
        assert result.accuracy == 0.0, "ties are no knowledge"
        assert result.standard_error == pytest.approx(0, abs=1e-14)


def test_an_oracle_has_no_loss(prepared: Path, vocabulary_size: int) -> None:
    rows = rows_of(prepared / "masked")
    answers = dict(zip(map(tuple, rows["input_ids"].tolist()), np.maximum(rows["labels"], 0), strict=True))

    class Oracle(FixedLogits):
        def forward(self, input_ids: torch.Tensor, attention_mask: Any = None) -> tuple[torch.Tensor]:
            labels = np.stack([answers[(*ids, *[0] * (LENGTH - len(ids)))][: len(ids)] for ids in input_ids.tolist()])
            return (torch.nn.functional.one_hot(torch.from_numpy(labels), self.vocabulary_size) * 1e4 + self.weight,)

    result = clozeline.evaluate(Oracle(vocabulary_size), in_batches(rows, 64))
    assert (result.loss, result.perplexity, result.accuracy, result.top5_accuracy) == (0.0, 1.0, 1.0, 1.0)


def test_a_batch_without_selected_tokens_changes_nothing(bert: Any, prepared: Path) -> None:
    """Fault seen elsewhere: its mean is 0 / 0, and the whole loss NaN."""
    rows = rows_of(prepared / "masked")
    whole = clozeline.evaluate(bert, in_batches(rows, 8))
    blank = {**rows, "labels": np.full_like(rows["labels"], -100), "shard": rows["shard"] + 100}
    more = clozeline.evaluate(bert, itertools.chain(in_batches(blank, 8), in_batches(rows, 8)))
    assert more.loss == whole.loss
    assert more.rows == 2 * whole.rows
    nothing = clozeline.evaluate(bert, in_batches(blank, 8))
    assert (nothing.loss, nothing.accuracy, nothing.interval, nothing.selected_tokens) == (None, None, None, 0)


def test_the_loss_is_a_mean_over_tokens_and_not_over_batches() -> None:
    """Fault seen elsewhere: batches with 1, 76 and 80 selected tokens and losses 9, 2, 2 were reported as 4.33, not 2.04."""

    class Known(FixedLogits):
        def forward(self, input_ids: torch.Tensor, attention_mask: Any = None) -> tuple[torch.Tensor]:
            # Two logits, 0 and x: the loss of label 0 is log(1 + e**x).
            x = torch.log(torch.expm1(torch.where(input_ids == 9, 9.0, 2.0).double()))
            return (torch.stack([torch.zeros_like(x), x], -1),)

    def row(selected: int, fill: int) -> dict[str, np.ndarray]:
        labels = np.full((1, 80), -100)
        labels[0, :selected] = 0
        return {"input_ids": np.full((1, 80), fill), "labels": labels}

    result = clozeline.evaluate(Known(2), [row(1, 9), row(76, 2), row(80, 2)])
    assert result.loss == pytest.approx((9 + 76 * 2 + 80 * 2) / 157, rel=1e-7)
    assert f"{result.loss:.2f}" == "2.04"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_reported_with_its_row(bad: float, prepared: Path, vocabulary_size: int) -> None:
    rows = rows_of(prepared / "masked")

    class Broken(FixedLogits):
        def forward(self, input_ids: torch.Tensor, attention_mask: Any = None) -> tuple[torch.Tensor]:
            logits = torch.zeros((*input_ids.shape, self.vocabulary_size))
            if torch.equal(input_ids[0], torch.from_numpy(rows["input_ids"][5])):
                logits[0, :, 0] = bad
            return (logits,)

    result = clozeline.evaluate(Broken(vocabulary_size), in_batches(rows, 1))
    assert result.loss is not None
    assert math.isnan(result.loss)
    selected = int((rows["labels"][5] != -100).sum())
    assert result.not_finite_rows == (
        {"masking": 0, "shard": int(rows["shard"][5]), "row": int(rows["row"][5]), "tokens": selected},
    )
    assert result.not_finite_tokens == selected
    assert result.to_json()["loss"] is None
    assert any(group.loss is not None and math.isnan(group.loss) for group in result.by["position"])


def test_every_row_has_its_own_sum(bert: Any, prepared: Path) -> None:
    rows = rows_of(prepared / "masked")
    scores = clozeline.evaluate(bert, in_batches(rows, 7)).row_scores.columns()
    expected = plain_losses(bert, rows)
    assert scores["shard"].tolist() == rows["shard"].tolist()
    assert scores["row"].tolist() == rows["row"].tolist()
    assert scores["selected"].tolist() == [len(e) for e in expected]
    np.testing.assert_allclose(scores["loss_sum"], [e.sum() for e in expected], rtol=1e-6)
    assert scores["tokens"].tolist() == rows["attention_mask"].sum(1).tolist()


def test_breakdowns_are_means_over_their_tokens(bert: Any, prepared: Path) -> None:
    rows = rows_of(prepared / "masked")
    facts = Data(prepared / "masked").metadata.tokenizer
    result = clozeline.evaluate(bert, in_batches(rows, 7), tokenizer=facts)
    losses = np.concatenate(plain_losses(bert, rows))
    row, position = np.nonzero(rows["labels"] != -100)
    inputs, labels = rows["input_ids"][row, position], rows["labels"][row, position]
    actions = {"mask": inputs == facts.mask_id, "keep": inputs == labels}
    actions["random"] = ~actions["mask"] & ~actions["keep"]
    assert [g.group for g in result.by["action"]] == ["mask", "random", "keep"]
    for group in result.by["action"]:
        assert group.selected_tokens == actions[group.group].sum()
        assert group.loss == pytest.approx(losses[actions[group.group]].mean(), rel=1e-6)
    for name, values in {
        "position": position,
        "row_length": rows["attention_mask"].sum(1)[row],
        "masks_in_row": (rows["labels"] != -100).sum(1)[row],
    }.items():
        for group in result.by[name]:
            first, last = (int(x) for x in (group.group.split("-") * 2)[:2])
            inside = (values >= first) & (values <= last)
            assert group.selected_tokens == inside.sum()
            assert not inside.any() or group.loss == pytest.approx(losses[inside].mean(), rel=1e-6)
    for name in result.by:
        assert sum(g.selected_tokens for g in result.by[name]) == result.selected_tokens, name


def test_a_row_that_comes_twice_is_refused(bert: Any, prepared: Path) -> None:
    """Fault seen elsewhere: rows that fill up the last batch are counted."""
    rows = rows_of(prepared / "masked")
    twice = {name: np.concatenate([values, values[:1]]) for name, values in rows.items()}
    with pytest.raises(clozeline.DataError, match="scored twice"):
        clozeline.evaluate(bert, in_batches(twice, 8))


def test_unmasked_rows_are_refused(bert: Any, prepared: Path) -> None:
    with pytest.raises(clozeline.DataError, match="no labels"):
        clozeline.evaluate(bert, in_batches(rows_of(prepared / "packed"), 8))


def test_ids_that_the_model_lacks_are_refused(prepared: Path, vocabulary_size: int) -> None:
    with pytest.raises(clozeline.DataError, match="another vocabulary"):
        clozeline.evaluate(tiny_model("bert", 20), in_batches(rows_of(prepared / "masked"), 8))


def test_the_model_is_left_in_its_mode(bert: Any, prepared: Path) -> None:
    bert.train()
    clozeline.evaluate(bert, in_batches(rows_of(prepared / "masked"), 8))
    assert bert.training
    bert.eval()


@pytest.mark.parametrize("loader", [False, True])
def test_a_stream_can_be_given_as_it_is(loader: bool, bert: Any, prepared: Path) -> None:
    rows = rows_of(prepared / "packed")
    masking = clozeline.Masking(seed=7)
    stream = clozeline.TokenStream(prepared / "packed", batch_size=5, transform=masking, tail="even", epoch=1)
    result = clozeline.evaluate(bert, clozeline.TokenLoader(stream) if loader else stream)
    assert result.rows == len(rows["row"])
    assert result.loss == pytest.approx(plain_loss(bert, rows_of(prepared / "masked", 1)), rel=1e-6)
    assert [g.group for g in result.by["action"]] == ["mask", "random", "keep"]
