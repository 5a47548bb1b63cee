"""`verify` says that a right data set is right, and of a wrong one what is wrong and where."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from forgery import forge

from clozeline import RunOptions, verify
from clozeline.cli.main import main
from clozeline.store.dataset import Data

SERIAL = RunOptions(executor="serial")


def wrong(path: Path, **options: object) -> dict[str, str]:
    """Failing checks and their first problem."""
    result = verify(path, run=SERIAL, **options)
    assert result.ok == all(check.ok for check in result.checks)
    return {check.name: check.problems[0] for check in result.checks if not check.ok}


@pytest.mark.parametrize("stage", ["text", "packed", "masked"])
def test_what_the_stages_write_is_right(prepared: Path, stage: str) -> None:
    options = {"against": prepared / "packed"} if stage == "masked" else {}
    assert wrong(prepared / stage, **options) == {}


def test_a_flipped_byte_is_found_by_digest_and_by_replay(work: Path) -> None:
    path = work / "masked" / "masked-00001-of-00006.arrow"
    data = bytearray(path.read_bytes())
    shard = Data(work / "masked").shard(1)
    ids, labels = (shard.take(name, np.array([3])) for name in ("input_ids", "labels"))
    position = int(np.flatnonzero(labels[0] != -100)[0])
    data[bytes(data).index(ids.tobytes()) + 2 * position] ^= 1
    path.write_bytes(data)
    found = wrong(work / "masked")
    assert {"digests", "replay"} <= set(found)
    assert "masked-00001-of-00006.arrow" in found["digests"]
    assert f"masked-00001-of-00006.arrow, row 3, position {position}:" in found["replay"]


@pytest.mark.parametrize("value", [2, 97])
def test_attention_other_than_0_and_1_is_found(work: Path, value: int) -> None:
    """A flipped bit of a one; in a masked data set the sum of a row's attention was once taken for its length."""

    def change(copy: int, shard: int, block: dict[str, np.ndarray]) -> np.ndarray:
        attention = block["attention_mask"].copy()
        attention[0, 3] = value
        return attention

    for stage in ("packed", "masked"):
        forge(work / stage, attention_mask=change)
        found = wrong(work / stage)
        assert set(found) == {"rows"}
        assert f"row 0, position 3: attention_mask is {value}" in found["rows"]


def test_a_shard_cut_at_a_batch_boundary_is_found(work: Path) -> None:
    path = work / "packed" / "packed-00000-of-00003.arrow"
    path.write_bytes(path.read_bytes()[:-8])
    assert set(wrong(work / "packed")) == {"digests", "layout"}


def test_a_missing_shard_is_found(work: Path) -> None:
    (work / "masked" / "masked-00005-of-00006.arrow").unlink()
    found = wrong(work / "masked")
    assert "missing" in found["layout"]
    assert "masked-00005" in found["digests"]


def test_swapped_shards_are_found_though_their_digests_fit(work: Path) -> None:
    data = Data(work / "masked")
    entries = list(data.manifest.shards)
    entries[0], entries[3] = replace(entries[0], file=entries[3].file), replace(entries[3], file=entries[0].file)
    swapped = [
        replace(e, bytes=o.bytes, sha256=o.sha256, rows=o.rows)
        for e, o in zip(entries, [entries[3], *entries[1:3], entries[0], *entries[4:]], strict=True)
    ]
    (data.location.path / "manifest.json").write_text(replace(data.manifest, shards=tuple(swapped)).to_file())
    assert {"metadata", "replay"} <= set(wrong(work / "masked"))


def test_masks_of_another_seed_are_found(work: Path) -> None:
    data = Data(work / "masked")
    other = replace(data.metadata, seed=6)
    (data.location.path / "manifest.json").write_text(replace(data.manifest, metadata=other).to_file())
    found = wrong(work / "masked")
    assert {"metadata", "replay"} <= set(found)
    assert "seed" in found["metadata"]


def test_a_copy_that_repeats_another_is_found(work: Path) -> None:
    first = {s: Data(work / "masked").shard(s).take("input_ids", np.arange(20)) for s in range(3)}
    rest = {s: Data(work / "masked").shard(s).take("labels", np.arange(20)) for s in range(3)}
    forge(
        work / "masked",
        input_ids=lambda copy, shard, block: _start(block["input_ids"], first[shard]),
        labels=lambda copy, shard, block: _start(block["labels"], rest[shard]),
    )
    found = wrong(work / "masked")
    assert set(found) == {"replay", "copies"}
    assert "masked-00003" in found["replay"]


def _start(column: np.ndarray, start: np.ndarray) -> np.ndarray:
    column = column.copy()
    column[: len(start)] = start
    return column


def test_a_changed_label_under_a_mask_is_found_against_the_packed_rows(work: Path) -> None:
    """The mask token hides what stood there: only the packed rows know."""

    def change(copy: int, shard: int, block: dict[str, np.ndarray]) -> np.ndarray:
        labels = block["labels"].copy()
        row, position = np.argwhere((block["input_ids"] == 4) & (labels != -100))[0]
        labels[row, position] = 5 + (labels[row, position] - 5 + 1) % 20
        return labels

    forge(work / "masked", labels=change)
    assert wrong(work / "masked") == {}
    assert "position" in wrong(work / "masked", against=work / "packed")["unmasking"]


def test_a_ledger_that_does_not_close_is_found(work: Path) -> None:
    path = work / "packed" / "manifest.json"
    body = json.loads(path.read_text())
    body["ledger"]["tokens"]["out"] -= 1
    path.write_text(json.dumps(body))
    assert "does not close" in wrong(work / "packed")["ledger"]


def test_padding_that_holds_text_is_found(work: Path) -> None:
    def change(copy: int, shard: int, block: dict[str, np.ndarray]) -> np.ndarray:
        ids = block["input_ids"].copy()
        row = int(np.flatnonzero(block["num_tokens"] < 32)[0])
        ids[row, -1] = 7
        return ids

    forge(work / "packed", input_ids=change)
    assert "position 31: id 7 stands in the padding" in wrong(work / "packed")["rows"]


def test_the_wrong_packed_data_set_is_refused(work: Path, tokenizer: Path) -> None:
    result = CliRunner().invoke(main, ["verify", str(work / "packed"), "--against", str(work / "packed")])
    assert result.exit_code == 2
    assert "was not made from" in result.output


def test_exit_codes_and_output(work: Path) -> None:
    run = CliRunner().invoke
    good = run(main, ["verify", str(work / "masked"), "--json", "-j", "1"])
    assert good.exit_code == 0
    assert json.loads(good.stdout)["ok"] is True
    shutil.copy(work / "masked" / "masked-00000-of-00006.arrow", work / "masked" / "masked-00003-of-00006.arrow")
    bad = run(main, ["verify", str(work / "masked"), "-j", "1"])
    assert bad.exit_code == 1
    assert "WRONG metadata" in bad.stdout
    assert "masked-00003-of-00006.arrow" in bad.stdout
    none = run(main, ["verify", str(work)])
    assert none.exit_code == 2
    assert "manifest.json" in none.stderr
