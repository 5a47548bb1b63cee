"""Rows packed in other ways: with document boundaries, in pairs, of several lengths. And the report."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import transformers
from click.testing import CliRunner
from tiny_models import LENGTH, plain_loss, plain_losses, rows_of, tiny_model

import clozeline
from clozeline.cli.main import main
from clozeline.evaluation.compare import compare
from clozeline.evaluation.report import render
from clozeline.evaluation.worst import ScoredToken, WorstRow


class Elements(HTMLParser):
    """The names of a page's elements, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def prepare(folder: Path, tokenizer: Path, **pack: Any) -> Path:
    lines = [
        f"document {i}. and the word{i % 5}. " + " ".join(f"x{(i + k) % 7}." for k in range(i % 4)) for i in range(24)
    ]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n")
    clozeline.prepare(
        folder / "corpus.txt",
        folder / "out",
        tokenizer,
        clozeline.ShardOptions(num_shards=2),
        clozeline.PackOptions(max_length=LENGTH, **pack),
        clozeline.MaskOptions(seed=7, rule=clozeline.MaskRule(mask_prob=0.3)),
        clozeline.RunOptions(executor="serial"),
    )
    return folder / "out" / "masked"


def test_figures_by_document_are_those_of_its_tokens(
    tmp_path: Path, tokenizer: Path, bert: Any, bert_folder: Path
) -> None:
    masked = prepare(tmp_path, tokenizer, boundaries=True)
    rows = rows_of(masked)
    losses = plain_losses(bert, rows)
    expected = []
    for i, lengths in enumerate(rows["document_lengths"]):
        at = np.flatnonzero(rows["labels"][i] != -100)
        start = 0
        for document, length in enumerate(lengths[lengths > 0].tolist()):
            inside = (at >= start) & (at < start + length)
            expected.append(
                (int(rows["shard"][i]), int(rows["row"][i]), document, length, inside.sum(), losses[i][inside].sum())
            )
            start += length
    file = tmp_path / "documents.parquet"
    arguments = ["evaluate", str(masked), "--model", str(bert_folder), "--device", "cpu", "--per-document", str(file)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    table = pq.read_table(file).to_pydict()
    found = list(zip(*(table[k] for k in ("shard", "row", "document", "tokens", "selected", "loss_sum")), strict=True))
    assert len({d for _, _, d, *_ in found}) > 2
    assert [f[:5] for f in found] == [e[:5] for e in expected]
    np.testing.assert_allclose([f[5] for f in found], [e[5] for e in expected], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
def test_models_that_know_segments_are_given_them(kind: str, prepared: Path, vocabulary_size: int) -> None:
    config = tiny_model(kind, vocabulary_size).config
    segments = kind == "bert"
    if segments:
        config.type_vocab_size = 2
    model = transformers.AutoModelForMaskedLM.from_config(config).eval()
    if segments:
        model.bert.embeddings.token_type_embeddings.weight.data *= 50
    rows = rows_of(prepared / "masked")
    rows["token_type_ids"] = (np.arange(LENGTH) > 9) * rows["attention_mask"]
    bare = {name: values for name, values in rows.items() if name != "token_type_ids"}
    result = clozeline.evaluate(model, [rows])
    assert result.loss == pytest.approx(plain_loss(model, rows if segments else bare), rel=1e-6)
    if segments:
        assert abs(plain_loss(model, bare) - result.loss) > 1e-4


def test_short_rows_give_the_same_as_padded_ones(tmp_path: Path, tokenizer: Path, bert: Any) -> None:
    """Columns that are padding in every row of a batch are not computed."""
    masked = prepare(tmp_path, tokenizer, packing="documents")
    rows = rows_of(masked)
    assert (rows["attention_mask"].sum(1) < LENGTH).any()
    for batch_rows in (1, 7):
        result = clozeline.assess(masked, bert, clozeline.AssessOptions(device="cpu", batch_rows=batch_rows)).result
        assert result.loss == pytest.approx(plain_loss(bert, rows), rel=1e-6)
        assert result.tokens == rows["attention_mask"].sum()


@pytest.mark.parametrize("pll", [False, True])
def test_the_report_shows_the_worst_rows_token_by_token(
    pll: bool, prepared: Path, bert: Any, bert_folder: Path, tmp_path: Path
) -> None:
    file, table = tmp_path / "report.html", tmp_path / "rows.parquet"
    arguments = [
        "evaluate",
        str(prepared / "masked"),
        "--model",
        str(bert_folder),
        "--device",
        "cpu",
        "--limit-rows",
        "12",
    ]
    done = CliRunner().invoke(
        main, [*arguments, "--html", str(file), "--per-row", str(table), *(["--pll"] if pll else [])]
    )
    assert done.exit_code == 0, done.output
    page = file.read_text("utf-8")
    rows = pq.read_table(table).to_pydict()
    worst = np.argsort(-np.array(rows["loss"]), kind="stable")[:10]
    shown = re.findall(r"masking (\d+), shard (\d+), row (\d+): ([\d.]+) nats", page)
    assert shown == [
        (str(rows["masking"][i]), str(rows["shard"][i]), str(rows["row"][i]), f"{rows['loss'][i]:.4f}") for i in worst
    ]
    assert page.count('class="t"') == sum(rows["selected"][i] for i in worst)
    assert "<script" not in page
    assert "http" not in page


def test_markup_in_tokens_and_names_is_shown_and_not_obeyed(bert: Any, prepared: Path, tmp_path: Path) -> None:
    attack = "\"'><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
    result = clozeline.evaluate(bert, [rows_of(prepared / "masked")])
    tokens = (
        ScoredToken(attack, attack, None),
        ScoredToken(attack, attack, 3.5),
        ScoredToken(attack, attack, float("nan")),
    )
    row = WorstRow(masking=0, shard=0, row=0, loss=3.5, tokens=tokens)
    comparison = compare(result, result, attack, "0" * 64)
    page = tmp_path / "report.html"
    page.write_text(render(attack, {"data": attack, attack: "model"}, result, comparison, [row]), encoding="utf-8")
    elements = Elements()
    elements.feed(page.read_text("utf-8"))
    assert not elements.names & {"script", "img"}
    assert "".join(elements.texts).count(attack) == 3 + 5
    chromium = shutil.which("chromium")
    if chromium is not None:
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        command = [chromium, *options, "--dump-dom", page.as_uri()]
        dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        assert "<title>owned" not in dom
        assert "Rows with the highest loss" in dom
