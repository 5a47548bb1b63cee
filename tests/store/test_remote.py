"""Data sets behind URLs: the same bytes as in a local folder. Against moto's S3 server, over HTTP."""

from __future__ import annotations

import gzip
import json
import mmap
import os
import platform
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from clozeline.errors import DestinationError
from clozeline.store.remote import RemoteLocation


def python(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def clozeline(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "clozeline", *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=300)


DIGESTS = """
import fsspec, hashlib
system, root = fsspec.core.url_to_fs({url!r})
for name in sorted(system.find(root)):
    if not name.endswith("run.json"):
        print(name.removeprefix(root.rstrip("/") + "/"), hashlib.sha256(system.cat_file(name)).hexdigest())
"""


def test_from_s3_to_s3_makes_the_same_bytes_as_locally(
    s3: dict[str, str], corpus: Path, tokenizer: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "corpus_folder"
    (folder / "more").mkdir(parents=True)
    (folder / "a.txt").write_bytes(corpus.read_bytes() * 40)
    (folder / "more" / "b.txt.gz").write_bytes(gzip.compress(corpus.read_bytes() * 20))
    python(
        "import fsspec\n"
        "system = fsspec.filesystem('s3')\n"
        "system.mkdir('s3://bucket')\n"
        f"system.put({str(folder)!r}, 's3://bucket/corpus', recursive=True)",
        s3,
    )
    options = [
        "--tokenizer",
        str(tokenizer),
        "--max-length",
        "64",
        "--seed",
        "3",
        "--keep-text",
        "--num-shards",
        "6",
        "-q",
    ]
    here = clozeline(s3, "run", str(folder), str(tmp_path / "out"), *options, "--executor", "serial")
    assert here.returncode == 0, here.stderr
    there = clozeline(
        s3, "run", "s3://bucket/corpus", "s3://bucket/out", *options, "-j", "2", "--executor", "processes"
    )
    assert there.returncode == 0, there.stderr
    local = python(DIGESTS.format(url=f"file://{tmp_path}/out"), s3)
    assert local.count("\n") > 3 * 6
    assert python(DIGESTS.format(url="s3://bucket/out"), s3) == local

    again = clozeline(s3, "run", "s3://bucket/corpus", "s3://bucket/out", *options)
    assert again.returncode == 2
    assert "holds a finished data set" in again.stderr
    verified = clozeline(s3, "verify", "s3://bucket/out/masked")
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.fixture(scope="module")
def mixed(s3: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of every kind that is read by rows or from its beginning; the same below s3://mixed/in."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("mixed") / "in"
    (folder / "deep").mkdir(parents=True)
    texts = [f"the cat sat on mat number {i} and the dog ran" for i in range(9000)]
    table = pa.table({"text": texts[:3000]})
    pq.write_table(table, folder / "rows.parquet", row_group_size=500)
    for name, new in (("file.arrow", pa.ipc.new_file), ("stream.arrow", pa.ipc.new_stream)):
        with new(folder / "deep" / name, table.schema) as writer:
            writer.write_table(table, max_chunksize=400)
    for k in range(3):
        lines = "".join(json.dumps({"text": t}) + "\n" for t in texts[3000 + 2000 * k : 5000 + 2000 * k])
        (folder / f"part-{k}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / ".hidden.txt").write_text("not to be read")
    upload(s3, folder, "mixed/in")
    return folder


def upload(environment: dict[str, str], folder: Path, place: str) -> None:
    python(
        "import fsspec\nsystem = fsspec.filesystem('s3')\n"
        f"system.mkdir('s3://{place.partition('/')[0]}', exist_ok=True)\n"
        f"system.put({str(folder)!r}, 's3://{place}', recursive=True)",
        environment,
    )


@pytest.mark.parametrize("pattern", ["", "/*.jsonl.gz", "/rows.parquet", "/de*", "/**/*.arrow"])
def test_tables_and_globs_by_url_make_the_same_bytes_as_locally(
    s3: dict[str, str], mixed: Path, tmp_path: Path, pattern: str
) -> None:
    options = ["--num-shards", "4", "-q", "--json"]
    here, there = (
        clozeline(s3, "shard", f"{source}{pattern}", str(tmp_path / name), *options)
        for source, name in ((str(mixed), "here"), ("s3://mixed/in", "there"))
    )
    assert here.returncode == 0, here.stderr
    assert there.returncode == 0, there.stderr
    assert json.loads(here.stdout)["rows"] >= 3000
    assert json.loads(here.stdout)["sha256"] == json.loads(there.stdout)["sha256"]


def test_a_tokenizer_by_url_makes_the_same_bytes_as_a_local_one(
    s3: dict[str, str], mixed: Path, tokenizer: Path, tmp_path: Path
) -> None:
    upload(s3, tokenizer, "tokenizers/small")
    digests = set()
    for number, place in enumerate((str(tokenizer), "s3://tokenizers/small", "s3://tokenizers/small/")):
        dest = tmp_path / f"out{number}"
        arguments = ["--tokenizer", place, "--max-length", "64", "-q", "--json"]
        done = clozeline(s3, "run", str(mixed / "rows.parquet"), str(dest), *arguments)
        assert done.returncode == 0, done.stderr
        digests.add(json.loads(done.stdout)["masked"]["sha256"])
    assert len(digests) == 1
    alone = clozeline(
        s3,
        "run",
        str(mixed / "rows.parquet"),
        str(tmp_path / "out"),
        "--tokenizer",
        "s3://tokenizers/small/tokenizer.json",
    )
    assert alone.returncode == 0, alone.stderr


def test_a_second_writer_to_a_url_is_kept_out_and_a_killed_one_is_not_for_ever(
    s3: dict[str, str], mixed: Path, tokenizer: Path, tmp_path: Path
) -> None:
    upload(s3, mixed, "locks/in")
    work = [sys.executable, "-m", "clozeline", "run", "s3://locks/in", "s3://locks/out", "--tokenizer", str(tokenizer)]
    work += ["--num-shards", "30", "--executor", "serial", "-q"]
    first = subprocess.Popen(work, env=s3, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    done = f"{s3['AWS_ENDPOINT_URL']}/locks?prefix=out/packed/.clozeline/done"
    while first.poll() is None and b"<Key>" not in urllib.request.urlopen(done, timeout=30).read():
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)
    second = clozeline(s3, *work[3:], "--resume")
    first.kill()
    first.wait()
    assert first.returncode == -9, "it ended before it was killed: more shards are needed"
    assert second.returncode == 2
    assert f"another clozeline is writing here, process {first.pid} on " in second.stderr
    third = clozeline(s3, *work[3:], "--resume")
    assert third.returncode == 0, third.stderr
    names = python("import fsspec\nprint(*fsspec.filesystem('s3').find('s3://locks/out'), sep='\\n')", s3)
    assert ".clozeline" not in names


@pytest.mark.parametrize("pid", [2**31 - 1, os.getpid()])
def test_a_lock_left_behind_on_this_host_is_taken_over(pid: int) -> None:
    """No process has that number, or this one has it, which holds no lock: it ran in this container before a restart."""
    place = RemoteLocation(f"memory://locks-here-{pid}/out")
    left = {"host": platform.node(), "pid": pid, "since": "then", "nonce": "aa"}
    place.write(".clozeline/lock", json.dumps(left).encode())
    with place.lock():
        pass
    assert not place.exists(".clozeline/lock")


def test_a_lock_left_behind_on_another_host_is_named() -> None:
    """Whether its process lives nobody can say."""
    place = RemoteLocation("memory://locks-elsewhere/out")
    place.write(".clozeline/lock", json.dumps({"host": "node7", "pid": 2**31 - 1, "since": "then"}).encode())
    message = r"process 2147483647 on node7 since then; .* remove memory://locks-elsewhere/out/\.clozeline/lock"
    with pytest.raises(DestinationError, match=message), place.lock():
        pass
    assert place.exists(".clozeline/lock")


def test_one_of_two_writers_gets_the_lock() -> None:
    place = RemoteLocation("memory://twice/out")
    with place.lock(), pytest.raises(DestinationError, match="another clozeline is writing"), place.lock():
        pass
    with place.lock():
        pass


def test_of_many_writers_at_once_one_gets_the_lock(s3: dict[str, str]) -> None:
    code = """
from threading import Barrier, Thread
from clozeline.errors import DestinationError
from clozeline.store.remote import RemoteLocation
import fsspec

fsspec.filesystem("s3").mkdir("s3://race", exist_ok=True)
place, together, held = RemoteLocation("s3://race/out"), Barrier(6), []

def enter():
    together.wait()
    try:
        with place.lock():
            held.append(True)
            together.wait()
    except DestinationError:
        together.wait()

threads = [Thread(target=enter) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(held), place.exists(".clozeline/lock"))
"""
    assert python(code, s3).split() == ["1", "False"]


def test_folders_are_made_where_a_store_has_them(tmp_path: Path) -> None:
    place = RemoteLocation(f"file://{tmp_path}/a/b")
    with place.lock():
        place.write("c/d", b"content")
    assert (tmp_path / "a" / "b" / "c" / "d").read_bytes() == b"content"
    assert place.names() == [".clozeline", "c"]


def test_a_shard_behind_a_url_is_mapped_not_held(tmp_path: Path) -> None:
    place = RemoteLocation("memory://mapped/out")
    place.write("shard", bytes(range(256)) * 4096)
    place.write("empty", b"")
    mapped = place.map("shard")
    assert isinstance(mapped, mmap.mmap)
    assert mapped[:] == bytes(range(256)) * 4096
    assert place.map("empty") == b""
    with pytest.raises(FileNotFoundError):
        place.map("none")


def test_what_cannot_be_reached_is_an_error_that_says_so(s3: dict[str, str], tokenizer: Path, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("the cat sat\n")
    upload(s3, tmp_path, "bucket2/in")
    nowhere = {**s3, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "FSSPEC_S3_ENDPOINT_URL": "http://127.0.0.1:9"}
    nobody = {k: v for k, v in s3.items() if not k.startswith("AWS_")} | {
        "AWS_EC2_METADATA_DISABLED": "true",
        "HOME": "/none",
    }
    here = str(tokenizer)
    out = str(tmp_path / "out")
    for environment, source, place, dest, message in (
        (s3, "s3://bucket2/none", here, out, "s3://bucket2/none: no such file or folder; check the URL"),
        (s3, "s3://nobucket/in", here, out, "s3://nobucket/in: The specified bucket does not exist"),
        (s3, "s3://bucket2/in/*.csv", here, out, "s3://bucket2/in/*.csv: no such file or folder; check the URL"),
        (s3, "nonsense://x/y", here, out, "nonsense"),
        (s3, str(text), "s3://bucket2/none", out, "s3://bucket2/none: no tokenizer.json there"),
        (s3, str(text), "s3://bucket2/in", out, "s3://bucket2/in: no tokenizer.json there"),
        (s3, str(text), here, "s3://nobucket/out", "The specified bucket does not exist"),
        (nobody, "s3://bucket2/in", here, out, "s3://bucket2/in: Unable to locate credentials"),
        (nobody, str(text), here, "s3://bucket2/out", "Unable to locate credentials"),
        (nowhere, "s3://bucket2/in", here, out, "s3://bucket2/in: Could not connect to the endpoint URL"),
    ):
        done = clozeline(environment, "run", source, dest, "--tokenizer", place)
        assert done.returncode == 2, (source, place, dest, done.stderr)
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_a_damaged_table_by_url_is_named(s3: dict[str, str], mixed: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.parquet").write_bytes((mixed / "rows.parquet").read_bytes()[:-100])
    (tmp_path / "in" / "stream.arrow").write_bytes((mixed / "deep" / "stream.arrow").read_bytes()[:-8])
    upload(s3, tmp_path / "in", "damaged/in")
    for name in ("rows.parquet", "stream.arrow"):
        done = clozeline(s3, "shard", f"s3://damaged/in/{name}", str(tmp_path / "out"))
        assert done.returncode == 2
        assert f"s3://damaged/in/{name}: not a readable" in done.stderr, done.stderr
