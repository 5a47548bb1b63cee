"""`clozeline evaluate`: output, exit codes, refusals."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import transformers
from click.testing import CliRunner, Result
from tiny_models import plain_loss, rows_of, tiny_model

from clozeline.cli.main import main


def evaluate(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["evaluate", *map(str, arguments), "--device", "cpu"])


def test_json_holds_the_loss_and_what_it_is_the_loss_of(prepared: Path, bert: Any, bert_folder: Path) -> None:
    done = evaluate(prepared / "masked", "--model", bert_folder, "--json")
    assert done.exit_code == 0, done.output
    body = json.loads(done.stdout)
    both = [plain_loss(bert, rows_of(prepared / "masked", copy)) for copy in (0, 1)]
    assert body["maskings"] == pytest.approx(both, rel=1e-6)
    assert body["interval"][0] < body["loss"] < body["interval"][1]
    assert body["masks"]["seed"] == 7
    assert re.fullmatch("[0-9a-f]{64}", body["model_sha256"])
    for key in ("perplexity", "rows_per_second", "tokens_per_second"):
        assert body[key] > 0


def test_people_are_told_the_loss_its_interval_and_the_actions(prepared: Path, bert_folder: Path) -> None:
    done = evaluate(prepared / "masked", "--model", bert_folder)
    assert re.search(
        r"loss +\d\.\d{4} nats per selected token \(95 %: \d\.\d{4} to \d\.\d{4}, clustered by row\)", done.stdout
    )
    assert all(re.search(rf"{action} +\d", done.stdout) for action in ("mask", "random", "keep"))


def test_a_loss_above_the_limit_exits_with_1(prepared: Path, bert_folder: Path) -> None:
    assert evaluate(prepared / "masked", "--model", bert_folder, "--max-loss", 3).exit_code == 1
    assert evaluate(prepared / "masked", "--model", bert_folder, "--max-loss", 30).exit_code == 0


def test_static_copies_and_epochs_on_the_fly_give_the_same_numbers(prepared: Path, bert_folder: Path) -> None:
    static = json.loads(evaluate(prepared / "masked", "--model", bert_folder, "--json").stdout)
    fly = ("--mask-on-the-fly", "--seed", 7, "--epochs", 2)
    on_the_fly = json.loads(evaluate(prepared / "packed", "--model", bert_folder, "--json", *fly).stdout)
    for key in ("loss", "maskings", "masking_spread", "standard_error", "interval", "by", "selected_tokens"):
        assert static[key] == on_the_fly[key]
    other = json.loads(evaluate(prepared / "packed", "--model", bert_folder, "--json", *fly, "--seed", 8).stdout)
    assert other["loss"] != static["loss"]


def test_the_table_of_rows_adds_up_to_the_loss(prepared: Path, bert_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    body = json.loads(evaluate(prepared / "masked", "--model", bert_folder, "--json", "--per-row", file).stdout)
    table = pq.read_table(file).to_pydict()
    assert len(table["row"]) == body["rows"]
    assert sum(table["loss_sum"]) / sum(table["selected"]) == pytest.approx(body["loss"], rel=1e-14)


def test_a_limit_draws_the_same_rows_for_every_masking(prepared: Path, bert_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    evaluate(prepared / "masked", "--model", bert_folder, "--limit-rows", 5, "--per-row", file)
    table = pq.read_table(file).to_pydict()
    rows = [
        {(s, r) for m, s, r in zip(table["masking"], table["shard"], table["row"], strict=True) if m == k}
        for k in (0, 1)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 5


def test_a_model_compared_with_itself_does_not_differ(prepared: Path, bert_folder: Path) -> None:
    body = json.loads(evaluate(prepared / "masked", "--model", bert_folder, "--compare", bert_folder, "--json").stdout)
    assert body["comparison"]["difference"] == 0.0
    assert body["comparison"]["interval"] == [0.0, 0.0]
    assert body["comparison"]["better_rows"] == 0.5


def refused(done: Result, *words: str) -> None:
    """One message that says so, and exit code 2."""
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("clozeline: error: ")
    assert len(done.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in done.stderr


def test_unmasked_rows_need_masking_on_the_fly(prepared: Path, bert_folder: Path) -> None:
    refused(evaluate(prepared / "packed", "--model", bert_folder), "--mask-on-the-fly")
    refused(evaluate(prepared / "masked", "--model", bert_folder, "--mask-on-the-fly"), "masked already")


@pytest.fixture
def copied(bert_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(bert_folder, tmp_path / "copied")
    return tmp_path / "copied"


def change_vocabulary(folder: Path, changes: dict[str, int]) -> None:
    body = json.loads((folder / "tokenizer.json").read_text())
    body["model"]["vocab"] |= changes
    (folder / "tokenizer.json").write_text(json.dumps(body))


def test_a_permuted_vocabulary_of_equal_size_is_refused(prepared: Path, copied: Path) -> None:
    vocabulary = json.loads((copied / "tokenizer.json").read_text())["model"]["vocab"]
    change_vocabulary(copied, {"the": vocabulary["and"], "and": vocabulary["the"]})
    refused(evaluate(prepared / "masked", "--model", copied), "'the'", "2 of 110 tokens differ")


def test_tokens_that_only_the_model_has_do_no_harm(prepared: Path, copied: Path) -> None:
    tiny_model("bert", 128).save_pretrained(copied)  # 110 padded to a multiple of 64
    change_vocabulary(copied, {"more": 110})
    assert evaluate(prepared / "masked", "--model", copied).exit_code == 0


def test_the_same_vocabulary_saved_in_another_form_is_taken(prepared: Path, copied: Path) -> None:
    """Fault seen elsewhere: digests of files were compared, and the same vocabulary has many forms."""
    body = json.loads((copied / "tokenizer.json").read_text())
    (copied / "tokenizer.json").write_text(json.dumps({**body, "padding": None, "version": "1.0"}, indent=3))
    assert evaluate(prepared / "masked", "--model", copied).exit_code == 0


def test_a_model_without_a_tokenizer_needs_about_as_many_embeddings(prepared: Path, tmp_path: Path) -> None:
    for size, code in ((109, 2), (110, 0), (128, 0), (2000, 2)):
        folder = tmp_path / str(size)
        tiny_model("bert", size).save_pretrained(folder)
        done = evaluate(prepared / "masked", "--model", folder)
        assert done.exit_code == code, (size, done.output)


@pytest.mark.parametrize(
    ("kind", "positions", "fits"),
    [("bert", 32, True), ("bert", 31, False), ("roberta", 33, True), ("roberta", 32, False)],
)
def test_a_model_needs_a_position_for_each_place(
    kind: str, positions: int, fits: bool, prepared: Path, tmp_path: Path, vocabulary_size: int
) -> None:
    config = tiny_model(kind, vocabulary_size).config
    config.max_position_embeddings = positions
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    done = evaluate(prepared / "masked", "--model", tmp_path)
    if fits:
        assert done.exit_code == 0, done.output
    else:
        refused(done, f"{positions - (kind == 'roberta')} positions", "--max-length")


def test_pickled_weights_need_permission(prepared: Path, copied: Path, bert: Any) -> None:
    (copied / "model.safetensors").unlink()
    refused(evaluate(prepared / "masked", "--model", copied), "holds no weights")
    torch.save(bert.state_dict(), copied / "pytorch_model.bin")
    refused(evaluate(prepared / "masked", "--model", copied), "--allow-pickle")
    assert evaluate(prepared / "masked", "--model", copied, "--allow-pickle").exit_code == 0


def test_code_that_comes_with_a_model_needs_permission(prepared: Path, copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text())
    config["auto_map"] = {"AutoModelForMaskedLM": "code.Model"}
    (copied / "config.json").write_text(json.dumps(config))
    (copied / "code.py").write_text("raise SystemExit('was run')")
    refused(evaluate(prepared / "masked", "--model", copied), "--trust-remote-code")


def test_a_model_without_a_trained_head_is_refused(prepared: Path, tmp_path: Path, bert: Any) -> None:
    """transformers fills the missing head at random, with no more than a warning."""
    bert.bert.save_pretrained(tmp_path)
    refused(evaluate(prepared / "masked", "--model", tmp_path), "lack", "at random")


@pytest.mark.parametrize("what", ["missing", "text", "empty"])
def test_what_is_no_model_is_refused(what: str, prepared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    if what != "missing":
        folder.mkdir()
    if what == "text":
        (folder / "config.json").write_text("{")
    refused(evaluate(prepared / "masked", "--model", folder), str(folder))


def test_damaged_weights_are_refused(prepared: Path, copied: Path) -> None:
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    refused(evaluate(prepared / "masked", "--model", copied), str(copied))


def test_a_device_that_is_not_there_is_refused(prepared: Path, bert_folder: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = CliRunner().invoke(
        main, ["evaluate", str(prepared / "masked"), "--model", str(bert_folder), "--device", "cuda"]
    )
    refused(done, "cuda", "--device auto")


def test_a_model_that_gives_nan_exits_with_2_and_names_the_row(
    prepared: Path, tmp_path: Path, vocabulary_size: int
) -> None:
    model = tiny_model("bert", vocabulary_size)
    with torch.no_grad():
        model.cls.predictions.bias[7] = float("nan")
    model.save_pretrained(tmp_path)
    done = evaluate(prepared / "masked", "--model", tmp_path)
    assert done.exit_code == 2
    assert re.search(r"no finite loss, in row 0 of shard 0", done.stderr)


@pytest.mark.parametrize("option", ["--per-row", "--per-document", "--html", "--checkpoint"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    option: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clozeline.assessment.assess", lambda *_, **__: pytest.fail("was evaluated"))
    refused(evaluate(prepared / "masked", "--model", "m", option, tmp_path / "none" / "x"), "none", "make that folder")
