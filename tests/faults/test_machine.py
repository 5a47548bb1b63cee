"""A machine that fails: a full disk, too little memory, a clock that goes back, and power that goes off."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stages import STAGES, Stages, refuse_or_be_whole

from clozeline import ClozelineError, DataError, RunOptions
from clozeline.store.dataset import Data
from clozeline.store.location import WORK

SERIAL = RunOptions(executor="serial")
RESUME = RunOptions(executor="serial", resume=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own in memory, of 64 KiB until it is remounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def resize(place: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(place)], check=True)


@pytest.mark.parametrize("stage", STAGES)
def test_a_full_disk_at_any_write_is_told_of_and_resumed(stages: Stages, small_disk: Path, stage: str) -> None:
    """The disk grows page by page: each time the run gets a little further, none of it lost, nothing half written in place."""
    dest = small_disk / "made"
    stopped, full = 0, True
    for kib in range(8, 4096, 16):
        resize(small_disk, f"{kib}k")
        try:
            stages.make(stage, dest, RESUME)
            break
        except (ClozelineError, OSError) as error:
            full = full and ("No space left" in str(error) or "cannot write here" in str(error))
            stopped += 1
            refuse_or_be_whole(dest, stages.clean[stage])
    assert full
    assert stopped >= 3
    stages.check(stage, dest)


def test_a_full_disk_ends_a_command_with_exit_code_2(stages: Stages, small_disk: Path) -> None:
    resize(small_disk, "20k")
    command = [sys.executable, "-m", "clozeline", *stages.command("shard", small_disk / "made")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv.pop(1)),) * 2)
runpy.run_module("clozeline", run_name="__main__")
"""


def test_too_little_memory_is_told_of_and_what_is_done_is_kept(tmp_path: Path) -> None:
    big = tmp_path / "big.txt"
    big.write_bytes(b"one two three\n" * 4_000_000 + b"word " * 20_000_000)
    made = tmp_path / "made"
    command = ["shard", str(big), str(made), "--max-document-bytes", "200000000", "--num-shards", "4", "-j", "1"]
    limited = [sys.executable, "-c", LIMITED, str(750 * 2**20), *command]
    done = subprocess.run(limited, check=False, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert re.search(r"text-0000\d-of-00004\.arrow: .*(memory|allocat)", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert list(made.glob("*.arrow"))
    subprocess.run([sys.executable, "-m", "clozeline", *command, "--resume"], check=True, capture_output=True)


def test_a_clock_that_goes_back_changes_nothing(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(time.time(), -3600)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    stages.make("shard", tmp_path / "made", SERIAL)
    stages.make("shard", tmp_path / "made", RESUME)
    stages.check("shard", tmp_path / "made")


def test_a_reader_sees_all_of_a_data_set_or_nothing_while_it_is_replaced(stages: Stages, tmp_path: Path) -> None:
    dest = tmp_path / "made"
    stages.make("pack", dest, SERIAL)
    reader = Data(dest)
    before = [block["input_ids"].copy() for block in reader.shard(0).batches()]
    seen = []

    def look(progress: object) -> None:
        try:
            Data(dest)
            seen.append("whole")
        except DataError:
            seen.append("nothing")

    stages.make("pack", dest, RunOptions(executor="serial", force=True, on_progress=look))
    assert set(seen) == {"nothing"}
    assert all(
        (a == b["input_ids"]).all() for a, b in zip(before, reader.shard(0).batches(), strict=True)
    )  # what it maps stays
    assert Data(dest).manifest.sha256 == reader.manifest.sha256


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("stage", ["shard", "pack"])
def test_after_a_power_cut_a_manifest_stands_only_for_what_is_on_disk(
    stages: Stages, tmp_path: Path, stage: str
) -> None:
    """The order of system calls: bytes are forced to disk before a file gets its name, every name before the manifest's."""
    dest, log = tmp_path / "made", tmp_path / "calls"
    command = [sys.executable, "-m", "clozeline", *stages.command(stage, dest), "--executor", "serial"]
    traced = [
        "strace",
        "-f",
        "-y",
        "-qq",
        "-e",
        "trace=fsync,fdatasync,rename,renameat,renameat2,write",
        "-o",
        str(log),
    ]
    subprocess.run([*traced, *command], check=True, capture_output=True)
    synced: set[str] = set()
    unsynced_names: dict[str, str] = {}  # name -> folder that holds it, until that folder is synced
    finals = []
    for line in log.read_text(errors="replace").splitlines():
        if found := re.search(r"write\(\d+<([^>]*)>", line):
            synced.discard(found[1])
        elif found := re.search(r"f(?:data)?sync\(\d+<([^>]*)>\)\s+= 0", line):
            synced.add(found[1])
            unsynced_names = {n: f for n, f in unsynced_names.items() if f != found[1]}
        elif found := re.search(r'rename(?:at2?)?\((?:AT_FDCWD[^,]*, )?"([^"]*)", (?:AT_FDCWD[^,]*, )?"([^"]*)"', line):
            old, new = found.groups()
            if new.endswith(f"{WORK}/ended"):  # the folder of the work, about to be removed
                continue
            assert old in synced, f"{new} got its name before its bytes were on disk"
            if new == str(dest / "manifest.json"):
                assert not unsynced_names, "the manifest got its name before others were on disk"
            finals.append(new)
            if WORK not in new:  # a record of work that is lost costs that work only
                unsynced_names[new] = str(Path(new).parent)
    assert finals[-1] == str(dest / "manifest.json")
    assert not unsynced_names
    expected = {str(dest / name) for name, content in stages.clean[stage].items() if content is not None}
    assert expected <= set(finals)
