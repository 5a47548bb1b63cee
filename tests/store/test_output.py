"""Who may write where: taken folders, resumption, replacement, and nothing left lying about."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clozeline import (
    DataError,
    DestinationError,
    InputError,
    JobError,
    PackOptions,
    RunOptions,
    SelectOptions,
    ShardOptions,
    VocabOptions,
    mask,
    pack,
    prepare,
    shard,
    vocab,
)
from clozeline.run.stage import Progress
from clozeline.store.location import WORK, Location
from clozeline.store.manifest import Manifest

OPTIONS = ShardOptions(num_shards=4)


class StopHereError(Exception):
    pass


def stop_after(jobs: int) -> Callable[[Progress], None]:
    def stop(progress: Progress) -> None:
        if progress.done == jobs:
            raise StopHereError

    return stop


def files_of(path: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(path)): p.read_bytes()
        for p in sorted(path.rglob("*"))
        if p.is_file() and p.name != "run.json"
    }


def serial(**options: object) -> RunOptions:
    return RunOptions(executor="serial", **options)


@pytest.fixture
def clean(corpus: Path, tmp_path: Path) -> dict[str, bytes]:
    shard(corpus, tmp_path / "clean", OPTIONS, serial())
    return files_of(tmp_path / "clean")


@pytest.fixture
def half(corpus: Path, tmp_path: Path, clean: dict[str, bytes]) -> Path:
    """An unfinished data set, two of four shards done."""
    with pytest.raises(StopHereError):
        shard(corpus, tmp_path / "half", OPTIONS, serial(on_progress=stop_after(2)))
    return tmp_path / "half"


def test_an_unfinished_data_set_is_none(half: Path, corpus: Path) -> None:
    from clozeline import DataError
    from clozeline.store.dataset import Data

    with pytest.raises(DataError, match="did not finish: run the same command again with --resume"):
        Data(half)
    with pytest.raises(DestinationError, match="holds an unfinished data set; --resume to finish it, or --force"):
        shard(corpus, half, OPTIONS, serial())


def test_resume_makes_the_same_bytes_and_only_what_is_missing(
    half: Path, corpus: Path, clean: dict[str, bytes]
) -> None:
    done = {p.name: p.stat().st_mtime_ns for p in half.glob("*.arrow")}
    assert len(done) == 2
    shard(corpus, half, OPTIONS, serial(resume=True))
    assert files_of(half) == clean
    assert all((half / name).stat().st_mtime_ns == time for name, time in done.items())


def test_resume_of_what_is_finished_does_nothing(corpus: Path, tmp_path: Path, clean: dict[str, bytes]) -> None:
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "clean").iterdir()}
    assert shard(corpus, tmp_path / "clean", OPTIONS, serial(resume=True)).nothing_to_do
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "clean").iterdir()} == before


@pytest.mark.parametrize("place", ["half", "clean"])
def test_resume_with_other_options_or_input_names_what_differs(
    half: Path, corpus: Path, tmp_path: Path, place: str
) -> None:
    dest = tmp_path / place
    before = files_of(dest)
    with pytest.raises(DestinationError, match=r"config\.select\.deduplicate: False there, True now"):
        shard(corpus, dest, ShardOptions(num_shards=4, select=SelectOptions(deduplicate=True)), serial(resume=True))
    os.utime(corpus, ns=(1, 1))
    with pytest.raises(DestinationError, match=r"input\.corpus\.txt"):
        shard(corpus, dest, OPTIONS, serial(resume=True))
    assert files_of(dest) == before
    assert (place == "half") == (dest / WORK).exists()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b'{"metadata": 3, "inputs": {}}', b"\xff", b"[" * 10_000])
def test_a_damaged_plan_is_told_of(half: Path, corpus: Path, clean: dict[str, bytes], damage: bytes) -> None:
    (half / WORK / "plan.json").write_bytes(damage)
    with pytest.raises(DestinationError, match=r"plan\.json: damaged .*--force"):
        shard(corpus, half, OPTIONS, serial(resume=True))
    shard(corpus, half, OPTIONS, serial(force=True))
    assert files_of(half) == clean


@pytest.mark.parametrize("damage", [b"", b"{", b"{}", b'{"entry": {"file": "../../x"}}', b"\xff"])
def test_a_damaged_record_costs_its_shard_only(
    half: Path, corpus: Path, clean: dict[str, bytes], damage: bytes
) -> None:
    next((half / WORK / "done").iterdir()).write_bytes(damage)
    shard(corpus, half, OPTIONS, serial(resume=True))
    assert files_of(half) == clean


def test_a_shard_that_is_not_what_its_record_says_is_made_again(
    half: Path, corpus: Path, clean: dict[str, bytes]
) -> None:
    first, second = sorted(half.glob("*.arrow"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-8])
    shard(corpus, half, OPTIONS, serial(resume=True))
    assert files_of(half) == clean


def test_force_replaces_other_work_wholly(corpus: Path, tmp_path: Path, clean: dict[str, bytes], half: Path) -> None:
    """Also what a shuffle had spilled before it was stopped: it may be of another input."""
    for dest in (tmp_path / "clean", half, tmp_path / "shuffled"):
        if dest.name == "shuffled":
            shuffled = ShardOptions(num_shards=4, select=SelectOptions(shuffle=True))
            with pytest.raises(StopHereError):
                shard(corpus, dest, shuffled, serial(on_progress=stop_after(1)))
            corpus.write_text("quite other text\n" * 30)
            shard(corpus, dest, shuffled, serial(force=True))
            shard(corpus, tmp_path / "expected", shuffled, serial())
            assert files_of(dest) == files_of(tmp_path / "expected")
        else:
            shard(corpus, dest, ShardOptions(num_shards=2), serial(force=True))
            assert sorted(p.name for p in dest.glob("*.arrow")) == [
                "text-00000-of-00002.arrow",
                "text-00001-of-00002.arrow",
            ]
            assert not (dest / WORK).exists()


def test_force_killed_in_the_middle_leaves_no_old_shards_in_a_new_data_set(
    corpus: Path, tmp_path: Path, clean: dict[str, bytes]
) -> None:
    dest = tmp_path / "clean"
    (dest / "manifest.json").unlink()  # what --force removes first
    (dest / WORK).mkdir()
    for options in (serial(), serial(resume=True)):
        with pytest.raises(DestinationError, match="--force to start again"):
            shard(corpus, dest, ShardOptions(num_shards=2), options)
    shard(corpus, dest, ShardOptions(num_shards=2), serial(force=True))
    assert len(list(dest.glob("*.arrow"))) == 2


def test_where_one_place_of_a_run_is_taken_the_other_is_not_begun(
    corpus: Path, tokenizer: Path, tmp_path: Path
) -> None:
    dest = tmp_path / "out"
    (dest / "masked").mkdir(parents=True)
    (dest / "masked" / "mine.txt").write_text("mine")
    with pytest.raises(DestinationError, match="masked: is not empty"):
        prepare(corpus, dest, tokenizer, OPTIONS, run=serial())
    assert [p.name for p in dest.iterdir()] == ["masked"]


def test_existing_places_are_refused(corpus: Path, tmp_path: Path, clean: dict[str, bytes]) -> None:
    with pytest.raises(DestinationError, match="holds a finished data set; choose another DEST, or --force"):
        shard(corpus, tmp_path / "clean", OPTIONS, serial())
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DestinationError, match="is a file"):
        shard(corpus, tmp_path / "file", OPTIONS, serial(force=True))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    for options in (serial(), serial(force=True), serial(resume=True)):
        with pytest.raises(DestinationError, match=r"is not empty \(thesis\.tex\) and is not a clozeline data set"):
            shard(corpus, tmp_path / "full", OPTIONS, options)
    (tmp_path / "full" / "manifest.json").write_text('{"name": "a web app"}')
    for options in (serial(), serial(force=True), serial(resume=True)):
        with pytest.raises(DestinationError, match="was not written by clozeline"):
            shard(corpus, tmp_path / "full", OPTIONS, options)
    assert (tmp_path / "full" / "thesis.tex").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    shard(corpus, tmp_path / "empty", OPTIONS, serial())
    assert files_of(tmp_path / "empty") == clean


def test_dest_inside_a_source_is_refused(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    corpus.rename(tmp_path / "corpus" / "a.txt")
    for dest in ("corpus/made", "corpus/deep/made", "corpus"):
        with pytest.raises(InputError, match="lies inside SOURCE"):
            shard(tmp_path / "corpus", tmp_path / dest, OPTIONS, serial())


def test_no_command_clears_what_it_reads(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    """`mask work/packed work/packed --force` once emptied work/packed before it read a row."""
    work = tmp_path / "work"
    (work / "corpus").mkdir(parents=True)
    corpus.rename(work / "corpus" / "a.txt")
    shard(work / "corpus", work / "text", OPTIONS, serial())
    shutil.copytree(tokenizer, work / "text" / "tokenizer")
    pack(work / "text", work / "packed", tokenizer, PackOptions(max_length=16), serial())
    shutil.copytree(work, tmp_path / "copy")
    (tmp_path / "copy").rename(work / "text" / "inside")  # now work/text, a data set, holds a corpus and data sets too
    (tmp_path / "link").symlink_to(work / "packed")
    before = files_of(tmp_path)
    inside, force = work / "text" / "inside", serial(force=True)
    for run in (
        lambda: mask(work / "packed", work / "packed", run=force),
        lambda: mask(work / "packed", tmp_path / "link", run=force),
        lambda: mask(work / "packed", work / "packed" / "deep", run=force),
        lambda: mask(inside / "packed", work / "text", run=force),
        lambda: pack(work / "text", work / "text", tokenizer, run=force),
        lambda: pack(inside / "text", work / "text", tokenizer, run=force),
        lambda: pack(inside / "text", work / "text", work / "text" / "tokenizer", run=force),
        lambda: pack(work / "packed", work / "text", work / "text" / "tokenizer", run=force),
        lambda: shard(inside / "corpus" / "a.txt", work / "text", OPTIONS, force),
        lambda: shard(f"{inside}/corpus/*.txt", work / "text", OPTIONS, force),
        lambda: prepare(inside / "corpus", work, tokenizer, OPTIONS, run=force, keep_text=True),
        lambda: vocab(inside / "text", work / "text", force=True),
        lambda: vocab(work / "text", work / "text" / "new", force=True),
    ):
        with pytest.raises((InputError, DataError)):
            run()
        assert files_of(tmp_path) == before


def test_vocab_replaces_a_tokenizer_and_nothing_else(corpus: Path, tmp_path: Path) -> None:
    shard(corpus, tmp_path / "text", OPTIONS, serial())
    vocab(tmp_path / "text", tmp_path / "model", VocabOptions(vocabulary_size=300))
    (tmp_path / "model" / "model.safetensors").write_bytes(b"a week of training")
    before = files_of(tmp_path)
    with pytest.raises(DestinationError, match=r"holds model\.safetensors"):
        vocab(tmp_path / "text", tmp_path / "model", VocabOptions(vocabulary_size=300), force=True)
    assert files_of(tmp_path) == before


def test_input_errors_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n" * 1000 + b"\xff\n")
    with pytest.raises(InputError):
        shard(path, tmp_path / "made", OPTIONS, serial())
    assert not (tmp_path / "made").exists()


def test_nothing_is_written_through_a_link_out_of_dest(
    corpus: Path, tmp_path: Path, half: Path, clean: dict[str, bytes]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    # A link under a shard's own name is replaced, not followed.
    (outside / "precious").write_text("mine")
    last = half / "text-00003-of-00004.arrow"
    last.symlink_to(outside / "precious")
    shard(corpus, half, OPTIONS, serial(resume=True))
    assert files_of(half) == clean
    assert not last.is_symlink()
    assert (outside / "precious").read_text() == "mine"
    # A link in place of a folder is refused.
    dest = tmp_path / "linked"
    dest.mkdir()
    (dest / WORK).symlink_to(outside)
    with pytest.raises(DestinationError, match="symbolic link"):
        shard(corpus, dest, OPTIONS, serial())
    location = Location(tmp_path / "other")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tokenizer").symlink_to(outside)
    with pytest.raises(DestinationError, match="symbolic link"):
        location.write("tokenizer/vocab.txt", b"x")
    assert [p.name for p in outside.iterdir()] == ["precious"]


def hold(path: str, ready: object, leave: object) -> None:
    with Location(path).lock():
        ready.set()
        leave.wait(120)


def test_a_second_writer_is_kept_out_and_the_lock_ends_with_its_holder(corpus: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(str(tmp_path / "made"), ready, leave))
    holder.start()
    assert ready.wait(120)
    for options in (serial(), serial(force=True), serial(resume=True)):
        with pytest.raises(DestinationError, match="another clozeline is writing here"):
            shard(corpus, tmp_path / "made", OPTIONS, options)
    holder.kill()
    holder.join()
    shard(corpus, tmp_path / "made", OPTIONS, serial())


@pytest.mark.parametrize("how", ["ended", "replaced"])
def test_a_worker_that_outlives_its_run_publishes_nothing(how: str, tmp_path: Path) -> None:
    location = Location(tmp_path)
    with location.lock():
        straggler = pickle.loads(pickle.dumps(location))
        (straggler / WORK / "part").write("early", b"in time")
        assert location.read(f"{WORK}/part/early") == b"in time"
        begun = straggler.writer("shard")
        begun.__enter__().write(b"too late")
        if how == "ended":
            location.remove_work()
    with contextlib.nullcontext() if how == "ended" else Location(tmp_path).lock():
        with pytest.raises(JobError, match="has ended"):
            begun.__exit__(None, None, None)
        with pytest.raises(JobError, match="has ended"), straggler.writer("another"):
            pass
        assert not location.exists("shard")
        assert location.exists(WORK) == (how == "replaced")


def test_a_worker_that_writes_on_does_not_hinder_the_end_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # more files in the way

    def write_on(location: Location, ended: threading.Event) -> None:
        while not ended.is_set():
            location.write("shard", b"bytes")

    for k in range(50):
        location, ended = Location(tmp_path / str(k)), threading.Event()
        with ThreadPoolExecutor(4) as pool, location.lock():
            stragglers = [pool.submit(write_on, location, ended) for _ in range(4)]
            try:
                while not location.exists("shard"):
                    time.sleep(0)
                location.remove_work()
            finally:
                ended.set()
        assert {type(straggler.exception()) for straggler in stragglers} <= {JobError, type(None)}
        assert location.names() == ["shard"]


def test_run_facts_are_apart_and_the_ledger_is_in_the_manifest(
    corpus: Path, tmp_path: Path, clean: dict[str, bytes]
) -> None:
    facts = json.loads((tmp_path / "clean" / "run.json").read_text())
    assert facts["executor"] == "serial"
    manifest = Manifest.load(Location(tmp_path / "clean"))
    assert manifest.ledger.documents.difference == 0
    assert str(tmp_path) not in (tmp_path / "clean" / "manifest.json").read_text()
