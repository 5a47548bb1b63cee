"""Data sets behind URLs: the same bytes as in a local folder. Against moto's S3 server, over HTTP."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path


def python(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def clozeline(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "clozeline", *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)


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


def test_nothing_there_and_no_such_scheme_are_errors_that_say_so(
    s3: dict[str, str], tokenizer: Path, tmp_path: Path
) -> None:
    for url, message in (("s3://bucket/none", "no such file or folder"), ("nonsense://x/y", "nonsense")):
        done = clozeline(s3, "run", url, str(tmp_path / "out"), "--tokenizer", str(tokenizer))
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr
