"""One pass or three: the same bytes, however the work is done."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

import clozeline
from clozeline import MaskOptions, MaskRule, PackOptions, ReadOptions, RunOptions, SelectOptions, ShardOptions

ROOT = Path(__file__).parents[1]


def digests(folder: Path) -> dict[str, str]:
    """sha256 of every file of a data set but run.json."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "run.json")
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


SHARD = ShardOptions(num_shards=5, read=ReadOptions(documents=("lines", "blank-lines:*.paragraphs.*")))
PACK = PackOptions(max_length=64)
MASK = MaskOptions(seed=11, copies=2)
SERIAL = RunOptions(executor="serial")
SAMPLE = ROOT / "sample_data" / "corpus"
TOKENIZER = ROOT / "sample_data" / "tokenizer"


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one_by_one")
    clozeline.shard(SAMPLE, folder / "text", SHARD, SERIAL)
    clozeline.pack(folder / "text", folder / "packed", TOKENIZER, PACK, SERIAL)
    clozeline.mask(folder / "packed", folder / "masked", MASK, SERIAL)
    return folder


@pytest.mark.parametrize(
    ("run", "engine", "keep_text"),
    [
        (SERIAL, "auto", False),
        (SERIAL, "tokenizers", True),
        (RunOptions(workers=2, executor="processes"), "auto", False),
        (RunOptions(workers=3, executor="processes"), "tokenizers", False),
    ],
)
def test_one_pass_writes_the_bytes_of_three(
    one_by_one: Path, tmp_path: Path, run: RunOptions, engine: str, keep_text: bool
) -> None:
    clozeline.prepare(SAMPLE, tmp_path, TOKENIZER, SHARD, PACK, MASK, run, keep_text=keep_text, engine=engine)
    names = ["packed", "masked", *(["text"] if keep_text else [])]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(names)
    for name in names:
        assert digests(tmp_path / name) == digests(one_by_one / name)


def test_paths_may_be_relative(one_by_one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    clozeline.prepare("sample_data/corpus", tmp_path / "o", "sample_data/tokenizer", SHARD, PACK, MASK, SERIAL)
    assert digests(tmp_path / "o" / "masked") == digests(one_by_one / "masked")


def test_shuffle_deduplication_and_hold_out_go_through_one_pass_too(tmp_path: Path) -> None:
    select = SelectOptions(seed=3, shuffle=True, deduplicate=True, held_out=0.2)
    options = ShardOptions(num_shards=3, read=SHARD.read, select=select)
    clozeline.prepare(SAMPLE, tmp_path / "a", TOKENIZER, options, PACK, MASK, SERIAL)
    clozeline.prepare(
        SAMPLE,
        tmp_path / "b",
        TOKENIZER,
        options,
        PACK,
        MASK,
        RunOptions(workers=2, executor="processes"),
        keep_text=True,
    )
    for name in ("packed", "masked"):
        assert digests(tmp_path / "a" / name) == digests(tmp_path / "b" / name)


def test_packed_rows_do_not_change_with_the_seed_of_the_masks(tmp_path: Path) -> None:
    for seed in (1, 2):
        clozeline.prepare(
            SAMPLE, tmp_path / str(seed), TOKENIZER, SHARD, PACK, MaskOptions(seed=seed), SERIAL, static=seed == 1
        )
    assert digests(tmp_path / "1" / "packed") == digests(tmp_path / "2" / "packed")
    assert not (tmp_path / "2" / "masked").exists()


def test_a_finished_run_has_nothing_to_do_and_other_work_is_refused(tmp_path: Path) -> None:
    resume = RunOptions(executor="serial", resume=True)
    clozeline.prepare(SAMPLE, tmp_path, TOKENIZER, SHARD, PACK, MASK, SERIAL)
    again = clozeline.prepare(SAMPLE, tmp_path, TOKENIZER, SHARD, PACK, MASK, resume)
    assert again.packed.nothing_to_do
    assert again.masked is not None
    assert again.masked.nothing_to_do
    with pytest.raises(clozeline.DestinationError, match="seed: 11 there, 12 now"):
        clozeline.prepare(SAMPLE, tmp_path, TOKENIZER, SHARD, PACK, MaskOptions(seed=12, copies=2), resume)
    with pytest.raises(clozeline.DestinationError, match="--force"):
        clozeline.prepare(SAMPLE, tmp_path, TOKENIZER, SHARD, PACK, MASK, SERIAL)


@pytest.mark.parametrize(
    "options",
    [
        MaskOptions(seed=11, copies=2, labels="sparse"),
        MaskOptions(seed=11, rule=MaskRule(replacement="frequency")),
        MaskOptions(seed=11, labels="sparse", rule=MaskRule(unit="word", replacement="frequency")),
    ],
    ids=["sparse", "by frequency", "both"],
)
def test_masks_that_need_all_rows_first_are_made_after_packing(
    one_by_one: Path, tmp_path: Path, options: MaskOptions
) -> None:
    clozeline.mask(one_by_one / "packed", tmp_path / "alone", options, SERIAL)
    made = clozeline.prepare(SAMPLE, tmp_path / "o", TOKENIZER, SHARD, PACK, options, SERIAL)
    assert made.masked is not None
    assert digests(tmp_path / "o" / "packed") == digests(one_by_one / "packed")
    assert digests(tmp_path / "o" / "masked") == digests(tmp_path / "alone")
    # A run that ended between the two.
    shutil.rmtree(tmp_path / "o" / "masked")
    resume = RunOptions(executor="serial", resume=True)
    assert clozeline.prepare(SAMPLE, tmp_path / "o", TOKENIZER, SHARD, PACK, options, resume).packed.nothing_to_do
    assert digests(tmp_path / "o" / "masked") == digests(tmp_path / "alone")


@pytest.mark.parametrize("replacement", ["uniform", "frequency"])
def test_masks_that_cannot_be_made_are_refused_before_any_work(tmp_path: Path, replacement: str) -> None:
    capped = MaskOptions(rule=MaskRule(max_predictions=2, replacement=replacement))
    with pytest.raises(clozeline.ConfigError, match="lowers the rate"):
        clozeline.prepare(SAMPLE, tmp_path / "o", TOKENIZER, SHARD, PACK, capped, SERIAL, keep_text=True)
    assert not (tmp_path / "o").exists()
    (tmp_path / "o" / "masked").mkdir(parents=True)
    (tmp_path / "o" / "masked" / "thesis.tex").write_text("mine")
    free = MaskOptions(rule=MaskRule(replacement=replacement))
    with pytest.raises(clozeline.DestinationError, match="is not empty"):
        clozeline.prepare(SAMPLE, tmp_path / "o", TOKENIZER, SHARD, PACK, free, SERIAL)
    assert not (tmp_path / "o" / "packed" / "manifest.json").exists()


def test_a_rate_for_a_copy_that_is_not_made_is_refused() -> None:
    """`--mask-prob 0.3,0.15` without `--copies 2` once made one copy at 30 % without a word."""
    with pytest.raises(clozeline.ConfigError, match="mask_prob has 2 values, one for each copy, and copies is 1"):
        MaskOptions(rule=MaskRule(mask_prob=(0.3, 0.15)))
    MaskOptions(rule=MaskRule(mask_prob=(0.3, 0.15)), copies=3)
