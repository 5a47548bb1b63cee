"""Other ways to the same numbers: pseudo-likelihoods, little memory, restarts, lower precision, comparison, training."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny_models import LENGTH, FixedLogits, plain_losses, rows_of, tiny_model

import clozeline
from clozeline.evaluation.evaluate import EvaluateOptions, make_scorer
from clozeline.store.dataset import Data


def assess(prepared: Path, model: Any, kind: str = "masked", **options: Any) -> Any:
    return clozeline.assess(prepared / kind, model, clozeline.AssessOptions(device="cpu", **options)).result


def test_pseudo_likelihood_masks_each_token_in_turn(prepared: Path, bert: Any) -> None:
    """Salazar et al. 2020: the sum over positions of log P(w_t | all others), held against a loop that does just that."""
    rows = rows_of(prepared / "packed")
    facts = Data(prepared / "packed").metadata.tokenizer
    expected = []
    with torch.no_grad():
        for ids, mask in zip(rows["input_ids"][:4], rows["attention_mask"][:4], strict=True):
            total = 0.0
            for t in np.flatnonzero(mask.astype(bool) & ~np.isin(ids, facts.special_ids)):
                without = torch.tensor(ids[None])
                without[0, t] = facts.mask_id
                logits = bert(without, attention_mask=torch.tensor(mask[None])).logits[0, t]
                total -= float(torch.log_softmax(logits.double(), -1)[ids[t]])
            expected.append(total)
    batch = {name: values[:4] for name, values in rows.items()}
    options = EvaluateOptions(pseudo_likelihood=True, batch_rows=7)
    result = clozeline.evaluate(bert, [batch], options, tokenizer=facts)
    np.testing.assert_allclose(result.row_scores.columns()["loss_sum"], expected, rtol=1e-6)
    assert [g.selected_tokens for g in result.by["action"]] == [result.selected_tokens, 0, 0]


def test_pseudo_likelihoods_of_masked_rows_are_those_of_the_text(prepared: Path, bert: Any) -> None:
    options: dict[str, Any] = {"compute": EvaluateOptions(pseudo_likelihood=True), "limit_rows": 4}
    packed, masked = (assess(prepared, bert, kind, **options) for kind in ("packed", "masked"))
    assert packed.loss == masked.loss
    assert packed.rows == masked.rows == 4


class Small(torch.nn.Module):
    """A model on a device whose memory holds three rows."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: torch.Tensor, **more: torch.Tensor) -> Any:
        if len(input_ids) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
        return self.inner(input_ids, **more)


def test_too_large_batches_are_halved_until_they_fit(prepared: Path, bert: Any) -> None:
    warnings: list[str] = []
    rows = rows_of(prepared / "masked")
    whole = clozeline.evaluate(bert, [rows])
    halved = clozeline.evaluate(Small(bert), [rows], on_warning=warnings.append)
    assert halved.loss == pytest.approx(whole.loss, rel=1e-6)
    assert halved.selected_tokens == whole.selected_tokens
    assert halved.batch_rows <= 3
    assert "do not fit into the memory" in warnings[0]


def test_what_fits_is_found_out_before_the_first_row(prepared: Path, bert: Any) -> None:
    warnings: list[str] = []
    scorer = make_scorer(Small(bert), EvaluateOptions(), None, warnings.append)
    assert scorer.probe(64, LENGTH) == 2
    assert [w.split(":")[1] for w in warnings] == [f" going on with {n} at once" for n in (32, 16, 8, 4, 2)]
    assert scorer.probe(3, LENGTH) == 3


def test_a_row_that_does_not_fit_alone_is_an_error(prepared: Path) -> None:
    class Tiny(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, **more: torch.Tensor) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(clozeline.ConfigError, match="one row does not fit"):
        clozeline.evaluate(Tiny(), [rows_of(prepared / "masked")])
    with pytest.raises(clozeline.ConfigError, match="one row does not fit"):
        make_scorer(Tiny(), EvaluateOptions(), None).probe(8, LENGTH)


def test_other_errors_of_a_model_are_not_taken_for_lack_of_memory(prepared: Path) -> None:
    class Broken(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, **more: torch.Tensor) -> Any:
            raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        clozeline.evaluate(Broken(), [rows_of(prepared / "masked")])


class Stops(torch.nn.Module):
    """A model that is interrupted after so many batches."""

    def __init__(self, inner: Any, after: int) -> None:
        super().__init__()
        self.inner, self.left = inner, after

    def forward(self, input_ids: torch.Tensor, **more: torch.Tensor) -> Any:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.inner(input_ids, **more)


@pytest.mark.parametrize("after", [0, 1, 5, 14])
def test_a_stopped_evaluation_goes_on_to_the_same_result(
    after: int, prepared: Path, bert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clozeline.evaluation.checkpoint.Checkpoint.due", lambda self: True)
    model = Stops(bert, after)
    common: dict[str, Any] = {"batch_rows": 5, "checkpoint": tmp_path / "kept", "resume": True}
    whole = assess(prepared, Stops(bert, 10**9), batch_rows=5)
    with pytest.raises(KeyboardInterrupt):
        assess(prepared, model, **common)
    assert (tmp_path / "kept").exists() == (after > 0)
    model.left = 10**9
    resumed = assess(prepared, model, **common)
    how = {"seconds", "rows_per_second", "tokens_per_second", "resumed_rows", "padding_share"}
    assert {k: v for k, v in resumed.to_json().items() if k not in how} == {
        k: v for k, v in whole.to_json().items() if k not in how
    }
    assert (resumed.resumed_rows > 0) == (after > 0)
    assert not (tmp_path / "kept").exists()


def test_a_checkpoint_of_other_work_is_refused(
    prepared: Path, bert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clozeline.evaluation.checkpoint.Checkpoint.due", lambda self: True)
    common: dict[str, Any] = {"batch_rows": 5, "checkpoint": tmp_path / "kept"}
    model = Stops(bert, 3)
    with pytest.raises(KeyboardInterrupt):
        assess(prepared, model, **common)
    model.left = 10**9
    with pytest.raises(clozeline.DestinationError, match="--resume"):
        assess(prepared, model, **common)
    with pytest.raises(clozeline.DestinationError, match="differs in limit_rows"):
        assess(prepared, model, **common, resume=True, limit_rows=9)
    with torch.no_grad():
        other = Stops(tiny_model("bert", bert.config.vocab_size, seed=1), 10**9)
    with pytest.raises(clozeline.DestinationError, match="differs in model"):
        assess(prepared, other, **common, resume=True)
    (tmp_path / "kept").write_bytes(b"PK damaged")
    with pytest.raises(clozeline.DestinationError, match="not a checkpoint"):
        assess(prepared, model, **common, resume=True)


@pytest.mark.parametrize(("dtype", "tolerance"), [("bf16", 1e-2), ("fp16", 1e-3)])
@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_half_precision_is_near_float32(
    kind: str, dtype: str, tolerance: float, prepared: Path, vocabulary_size: int
) -> None:
    """On the CPU; the code is that of a GPU. The softmax is float32 still: equal logits give ln V to the last digit."""
    model = tiny_model(kind, vocabulary_size)
    exact, rough = (assess(prepared, model, compute=EvaluateOptions(dtype=d)) for d in ("float32", dtype))
    assert rough.dtype == dtype
    assert exact.loss != rough.loss
    assert rough.loss == pytest.approx(exact.loss, rel=tolerance)
    sums = [r.row_scores.columns()["loss_sum"] for r in (exact, rough)]
    np.testing.assert_allclose(*sums, rtol=20 * tolerance, atol=0.1)
    flat = assess(prepared, FixedLogits(vocabulary_size), compute=EvaluateOptions(dtype=dtype))
    assert flat.loss == pytest.approx(math.log(vocabulary_size), rel=1e-15)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a compiler")
@pytest.mark.filterwarnings("ignore")  # of torch's own parts
@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_a_compiled_encoder_gives_the_same_loss(kind: str, prepared: Path, vocabulary_size: int) -> None:
    model = tiny_model(kind, vocabulary_size)
    for apart in (False, True):  # rows of one length, documents of many
        plain, compiled = (
            assess(prepared, model, batch_rows=7, compute=EvaluateOptions(compile=c, documents_apart=apart))
            for c in (False, True)
        )
        assert compiled.loss == pytest.approx(plain.loss, rel=1e-6)
        assert compiled.selected_tokens == plain.selected_tokens
    frames = torch._dynamo.utils.counters["frames"]
    assert frames["ok"] > 0, "nothing was compiled"


def test_the_paired_error_is_smaller_than_that_of_two_separate_losses(prepared: Path, bert: Any) -> None:
    near = tiny_model("bert", bert.config.vocab_size)
    with torch.no_grad():
        near.cls.predictions.bias += 0.1 * torch.randn(
            bert.config.vocab_size, generator=torch.Generator().manual_seed(1)
        )
    found = clozeline.assess(prepared / "masked", bert, clozeline.AssessOptions(device="cpu"), against=near)
    alone = assess(prepared, near)
    comparison = found.comparison
    assert comparison.loss == alone.loss
    assert comparison.difference == pytest.approx(alone.loss - found.result.loss)
    assert 0 < comparison.standard_error < 0.5 * found.result.standard_error
    assert comparison.interval[0] < comparison.difference < comparison.interval[1]


def test_the_interval_is_that_of_a_bootstrap_over_rows(prepared: Path, bert: Any) -> None:
    rows = rows_of(prepared / "masked")
    losses = plain_losses(bert, rows)
    sums, counts = np.array([e.sum() for e in losses]), np.array([len(e) for e in losses])
    drawn = np.random.default_rng(0).integers(0, len(sums), (4000, len(sums)))
    spread = (sums[drawn].sum(1) / counts[drawn].sum(1)).std()
    result = clozeline.evaluate(bert, [rows])
    assert result.standard_error == pytest.approx(spread, rel=0.08)
    assert result.interval == pytest.approx((result.loss - 1.96 * spread, result.loss + 1.96 * spread), rel=0.01)


def test_maskings_of_one_row_are_one_cluster(prepared: Path, bert: Any) -> None:
    """Twice the maskings are not twice the rows: the standard error must not shrink as if they were."""
    once = {**rows_of(prepared / "masked"), "masking": np.int64(0)}
    again = {**once, "masking": np.int64(1)}
    one, two = clozeline.evaluate(bert, [once]), clozeline.evaluate(bert, [once, again])
    assert two.standard_error == pytest.approx(one.standard_error, rel=1e-12)
    assert two.maskings == (one.loss, one.loss)
    assert two.masking_spread == 0.0


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
def test_the_trainer_logs_the_exact_loss(prepared: Path, vocabulary_size: int, tmp_path: Path) -> None:
    model = tiny_model("bert", vocabulary_size)
    rows = rows_of(prepared / "masked")
    columns = ("input_ids", "attention_mask", "labels")
    train = [{name: torch.tensor(rows[name][i]) for name in columns} for i in range(8)]
    callback = clozeline.EvaluateCallback(prepared / "masked", clozeline.AssessOptions(device="cpu", limit_rows=20))
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=4,
        per_device_train_batch_size=4,
        eval_strategy="steps",
        eval_steps=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        learning_rate=1e-2,
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="clozeline_loss",
        greater_is_better=False,
    )
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=train, eval_dataset=train[:2], callbacks=[callback]
    )
    trainer.train()
    assert [step for step, _ in callback.results] == [2, 4]
    logged = [entry for entry in trainer.state.log_history if "clozeline_loss" in entry]
    assert [entry["clozeline_loss"] for entry in logged] == [result.loss for _, result in callback.results]
    best = min(result.loss for _, result in callback.results)
    assert trainer.state.best_metric == best
    assert assess(prepared, model, limit_rows=20).loss == pytest.approx(best, rel=1e-12)
    assert callback.results[0][1].loss != callback.results[1][1].loss
