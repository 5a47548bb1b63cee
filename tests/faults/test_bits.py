"""A flipped bit anywhere in what the manifest vouches for is found by `verify`."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from stages import Stages

from clozeline import RunOptions, verify
from clozeline.errors import ClozelineError

SERIAL = RunOptions(executor="serial")
NOT_VOUCHED_FOR = {"run.json", "state.json", "dataset_info.json"}  # facts of the run, and what only `datasets` reads


def flips(path: Path, count: int) -> list[tuple[int, int]]:
    draw, size = random.Random(3), path.stat().st_size
    places = {0, size - 1, *(draw.randrange(size) for _ in range(count))}
    return [(place, 1 << draw.randrange(8)) for place in sorted(places)]


def missed(stages: Stages, folder: Path, stage: str, count: int) -> list[str]:
    """Where a flip went unnoticed."""
    whole = stages.folder / f"clean-{stage}"
    dest = folder / stage
    shutil.copytree(whole, dest)
    assert verify(dest, run=SERIAL).ok
    found = []
    for path in sorted(p for p in dest.rglob("*") if p.is_file() and p.name not in NOT_VOUCHED_FOR):
        good = path.read_bytes()
        for place, bit in flips(path, count):
            bad = bytearray(good)
            bad[place] ^= bit
            path.write_bytes(bad)
            try:
                ok = verify(dest, run=SERIAL).ok
            except ClozelineError:
                ok = False
            if ok:
                found.append(f"{path.name} byte {place} bit {bit}: {good[place]:#x}")
        path.write_bytes(good)
    return found


@pytest.mark.parametrize("stage", ["shard", "pack", "mask"])
def test_a_flipped_bit_is_found(stages: Stages, tmp_path: Path, stage: str) -> None:
    assert missed(stages, tmp_path, stage, 3) == []


def test_an_attention_mask_that_is_no_mask_is_told_of(stages: Stages, tmp_path: Path) -> None:
    """Fault of ours: a row with more tokens than positions ended `verify` with a ValueError."""
    dest = tmp_path / "mask"
    shutil.copytree(stages.folder / "clean-mask", dest)
    path = min(dest.glob("*.arrow"))
    content = path.read_bytes()
    ones = content.index(b"\x01" * 64)
    path.write_bytes(content[:ones] + b"\x81" + content[ones + 1 :])
    found = verify(dest, run=SERIAL)
    assert not found.ok
    assert "num_tokens is 64, attention_mask has" in str(found.to_json())


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["shard", "pack", "mask"])
def test_a_flipped_bit_is_found_in_two_hundred_places_of_each_file(stages: Stages, tmp_path: Path, stage: str) -> None:
    assert missed(stages, tmp_path, stage, 200) == []
