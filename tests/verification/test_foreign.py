"""Rows in other tools' columns come to the same as in ours."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from rows_at_hand import FACTS, SIZE, make_rows
from test_faults import Exact
from tokenizers import Tokenizer

from clozeline import ConfigError, DataError, MaskRule, RunOptions, load_tokenizer, verify_foreign
from clozeline.cli.main import main
from clozeline.store.dataset import Data
from clozeline.verification.foreign_rows import ForeignReader

SERIAL = RunOptions(executor="serial")


def command(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["verify", *map(str, arguments), "-j", "1"])


@pytest.fixture
def ours(prepared: Path) -> dict[str, np.ndarray]:
    shard = Data(prepared / "masked").shard(0)
    names = ("input_ids", "labels", "attention_mask")
    return {name: shard.take(name, np.arange(shard.entry.rows)).astype(np.int64) for name in names}


def read(table: pa.Table, tokenizer: Path) -> dict[str, np.ndarray]:
    loaded = load_tokenizer(tokenizer)
    vocabulary = json.loads(loaded.json)["model"]["vocab"]
    return ForeignReader(facts=loaded.facts, row_length=32, vocabulary=vocabulary).columns(table.to_batches()[0])


def test_columns_of_googles_bert(ours: dict[str, np.ndarray], tokenizer: Path) -> None:
    at = [np.flatnonzero(row != -100) for row in ours["labels"]]
    ids = [row[places] for row, places in zip(ours["labels"], at, strict=True)]
    table = pa.table(
        {
            "input_ids": list(ours["input_ids"]),
            "input_mask": list(ours["attention_mask"]),
            "masked_lm_positions": [np.pad(places, (0, 20 - len(places))) for places in at],
            "masked_lm_ids": [np.pad(values, (0, 20 - len(values))) for values in ids],
            "masked_lm_weights": [np.pad(np.ones(len(places)), (0, 20 - len(places))) for places in at],
        }
    )
    found = read(table, tokenizer)
    for name in ours:
        assert (found[name] == ours[name]).all(), name


def test_columns_of_lddl(ours: dict[str, np.ndarray], tokenizer: Path) -> None:
    name = Tokenizer.from_str(load_tokenizer(tokenizer).json).id_to_token
    full = np.flatnonzero(ours["attention_mask"].all(axis=1))
    saved = []
    for row in ours["labels"][full]:
        file = io.BytesIO()
        np.save(file, np.flatnonzero(row != -100).astype(np.uint16))
        saved.append(file.getvalue())
    table = pa.table(
        {
            "A": [" ".join(map(name, row[1:-1].tolist())) for row in ours["input_ids"][full]],
            "B": [""] * len(full),
            "masked_lm_positions": saved,
            "masked_lm_labels": [" ".join(map(name, row[row != -100].tolist())) for row in ours["labels"][full]],
        }
    )
    found = read(table, tokenizer)
    for column in ("input_ids", "labels"):
        assert (found[column] == ours[column][full]).all(), column


def test_rows_of_different_lengths_are_filled_up(tokenizer: Path) -> None:
    table = pa.table({"input_ids": [[2, 9, 3], [2, 9, 9, 9, 3]], "labels": [[-100, 9, -100], [-100] * 5]})
    found = read(table, tokenizer)
    assert found["input_ids"].shape == (2, 32)
    assert found["attention_mask"].sum(axis=1).tolist() == [3, 5]
    assert (found["labels"] != -100).sum() == 1


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "file.arrow"])
def test_every_kind_of_file_is_read(ours: dict[str, np.ndarray], tmp_path: Path, tokenizer: Path, suffix: str) -> None:
    table = pa.table({name: list(values) for name, values in ours.items()})
    path = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        new = pa.ipc.new_file if suffix == "file.arrow" else pa.ipc.new_stream
        with new(path, table.schema) as writer:
            writer.write_table(table)
    result = verify_foreign(path, load_tokenizer(tokenizer).facts, MaskRule(), run=SERIAL)
    assert result.ok, [c for c in result.checks if not c.ok]
    assert result.rows == len(ours["labels"])


def test_our_own_data_passes_as_foreign(prepared: Path, tokenizer: Path, tmp_path: Path) -> None:
    result = command("--foreign", prepared / "masked", "--tokenizer", tokenizer, "--html", tmp_path / "r.html")
    assert result.exit_code == 0, result.output
    assert "assumed: 15 % of tokens" in result.stdout
    assert "assumed" in (tmp_path / "r.html").read_text()


def test_an_exact_number_a_row_is_inferred(tmp_path: Path) -> None:
    masked, labels = Exact()(make_rows(600, 128))
    pq.write_table(pa.table({"input_ids": list(masked), "labels": list(labels)}), tmp_path / "rows.parquet")
    result = verify_foreign(tmp_path / "rows.parquet", FACTS, run=SERIAL)
    assert result.ok, [c for c in result.checks if not c.ok]
    assert "exact" in result.note


def test_another_scheme_than_expected_is_wrong(prepared: Path, tokenizer: Path) -> None:
    result = command("--foreign", prepared / "masked", "--tokenizer", tokenizer, "--mask-prob", "0.3")
    assert result.exit_code == 1
    assert "WRONG selection_rate" in result.stdout


def test_what_is_missing_is_named(prepared: Path, tokenizer: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "rows.parquet")
    for arguments, message in (
        (["--foreign", prepared / "masked"], "give --tokenizer"),
        (["--foreign", tmp_path / "rows.parquet", "--tokenizer", tokenizer], "has columns text"),
        (["--foreign", tmp_path / "none", "--tokenizer", tokenizer], "no .arrow or .parquet files"),
        ([prepared / "masked", "--mask-prob", "0.2"], "says itself how it was masked"),
        (["--foreign", prepared / "masked", "--tokenizer", tokenizer, "--spans"], "cannot be told"),
    ):
        result = command(*arguments)
        assert result.exit_code == 2, result.output
        assert message in result.stderr


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 no such thing PAR1")
    with pytest.raises(DataError, match=r"rows\.parquet: cannot be read"):
        verify_foreign(tmp_path, FACTS, run=SERIAL)
    with pytest.raises(ConfigError, match="one masking rate"):
        verify_foreign(tmp_path, FACTS, MaskRule(mask_prob=(0.1, 0.2)), run=SERIAL)


@pytest.mark.parametrize("value", [-5, SIZE, 2**40, -(2**40), 2**62])
@pytest.mark.parametrize("column", ["input_ids", "labels"])
def test_numbers_that_are_no_ids_are_found_wherever_they_stand(tmp_path: Path, value: int, column: str) -> None:
    """Ids served as indices into tables: a negative one ended in a traceback, a large one took a terabyte."""
    masked, labels = Exact()(make_rows(60, 128))
    for selected in (True, False):
        wrong = {"input_ids": masked.copy(), "labels": labels.copy()}
        row, position = np.argwhere((labels != -100) == selected)[5]
        wrong[column][row, position] = value
        pq.write_table(pa.table({k: list(v) for k, v in wrong.items()}), tmp_path / "rows.parquet")
        result = verify_foreign(tmp_path / "rows.parquet", FACTS, MaskRule(selection="exact"), run=SERIAL)
        found = {c.name: c.problems[0] for c in result.checks if not c.ok}
        assert f"row {row}, position {position}" in found["rows" if column == "input_ids" else "labels"]


IDS, LABELS = [[2, 9, 3]] * 3, [[-100, 9, -100]] * 3
SPARSE = {"masked_lm_positions": [[1]] * 3, "masked_lm_ids": [[9]] * 3}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"input_ids": [1, 2, 3], "labels": LABELS}, "input_ids is of type int64, where lists"),
        ({"input_ids": ["2 9 3"] * 3, "labels": LABELS}, "input_ids is of type string, where lists"),
        ({"input_ids": [["2", "9", "3"]] * 3, "labels": LABELS}, "input_ids holds text"),
        ({"input_ids": [[2, 9.5, 3]] * 3, "labels": LABELS}, "input_ids holds something other than integers"),
        ({"input_ids": [None, *IDS[1:]], "labels": LABELS}, "input_ids has missing values"),
        ({"input_ids": IDS, "labels": [[-100, None, -100]] * 3}, "labels has missing values"),
        ({"input_ids": IDS, "labels": [*LABELS[:2], [-100, 9]]}, "row 2 of these has 3 ids and 2 values of labels"),
        ({"input_ids": IDS, "labels": LABELS, "attention_mask": [[1] * 9] * 3}, "3 ids and 9 values of attention_mask"),
        ({"input_ids": IDS, **SPARSE, "masked_lm_positions": [[1], [3], [1]]}, "row 1 of these: masked_lm_positions"),
        ({"input_ids": IDS, **SPARSE, "masked_lm_positions": [[-1]] * 3}, "row 0 of these: masked_lm_positions"),
        ({"input_ids": IDS, **SPARSE, "masked_lm_positions": [None] * 3}, "row 0 of these: masked_lm_positions"),
        ({"input_ids": IDS, **SPARSE, "masked_lm_ids": [[9, 9]] * 3}, "row 0 of these: masked_lm_positions"),
        ({"input_ids": IDS, **SPARSE, "masked_lm_weights": [[1.0, 0.0]] * 3}, "row 0 of these: masked_lm_positions"),
        ({"A": ["a"] * 3, "B": [None] * 3, **SPARSE}, "column B must hold text in every row"),
        ({"input_ids": [[]] * 3, "labels": [[]] * 3}, "no rows with an id"),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(
    columns: dict[str, object], message: str, tmp_path: Path, tokenizer: Path
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    result = command("--foreign", tmp_path / "rows.parquet", "--tokenizer", tokenizer)
    assert result.exit_code == 2, result.output
    assert "rows.parquet" in result.stderr
    assert message in result.stderr
