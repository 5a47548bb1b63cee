"""Streams from servers: S3 (moto's, over HTTP), and a web server that fails now and then."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from stream_data import write_packed

from clozeline import CacheOptions, StreamOptions, TokenStream
from clozeline.errors import DataError

READ = """
import hashlib, sys
from clozeline import CacheOptions, StreamOptions, TokenLoader, TokenStream
from clozeline.streaming.measure import rows_digest
if __name__ == "__main__":
    url, folder, size, workers, method, attempts = sys.argv[1:]
    cache = CacheOptions(folder=folder, max_bytes=int(size), attempts=int(attempts))
    stream = TokenStream(url, batch_size=7, shuffle=None, tail="even", options=StreamOptions(cache=cache))
    workers, method = int(workers), method if int(workers) else None
    loader = TokenLoader(stream, num_workers=workers, multiprocessing_context=method)
    for _ in range(2):
        print(rows_digest(list(loader)))
"""


def start(
    environment: dict[str, str],
    url: str,
    folder: Path,
    size: int,
    workers: int = 0,
    method: str = "",
    attempts: int = 5,
) -> subprocess.Popen[str]:
    script = folder.parent / "read.py"
    script.write_text(READ)
    argv = [sys.executable, str(script), url, str(folder), str(size), str(workers), method, str(attempts)]
    return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def printed(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.split()


def local_digest(packed: Path) -> str:
    from clozeline.streaming.measure import rows_digest

    return rows_digest(list(TokenStream(packed, batch_size=7, shuffle=None, tail="even")))


@pytest.fixture
def uploaded(s3: dict[str, str], tmp_path: Path) -> tuple[str, Path]:
    """Twelve shards in a bucket of this test's own, and the folder that they come from."""
    packed = write_packed(tmp_path / "packed", [20] * 12)
    url = f"s3://{tmp_path.name.replace('_', '-').lower()}/data"
    code = (
        f"import fsspec; system = fsspec.filesystem('s3'); system.mkdir({url.rpartition('/')[0]!r}); "
        f"system.put({str(packed)!r}, {url!r}, recursive=True)"
    )
    subprocess.run([sys.executable, "-c", code], env=s3, check=True)
    return url, packed


def cached_bytes(folder: Path) -> int:
    """What the cache holds, complete or being fetched, between two changes."""
    if not (folder / "lock").exists():
        return 0
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return sum(p.stat().st_size for p in folder.iterdir() if p.suffix in ("", ".part"))


def test_three_processes_share_a_cache_that_is_too_small_for_the_data(
    s3: dict[str, str], uploaded: tuple[str, Path], tmp_path: Path
) -> None:
    """Each makes room where others have just read: all see every row, and the cache is never larger than allowed."""
    url, packed = uploaded
    limit = 2 * max(p.stat().st_size for p in packed.glob("*.arrow")) + 10
    processes = [start(s3, url, tmp_path / "cache", limit) for _ in range(3)]
    most = 0
    while any(p.poll() is None for p in processes):
        most = max(most, cached_bytes(tmp_path / "cache"))
        time.sleep(0.002)
    expected = local_digest(packed)
    assert [printed(p) for p in processes] == [[expected] * 2] * 3
    assert 0 < most <= limit


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_worker_processes_read_from_s3(
    s3: dict[str, str], uploaded: tuple[str, Path], tmp_path: Path, method: str
) -> None:
    url, packed = uploaded
    assert printed(start(s3, url, tmp_path / "cache", 10**9, 2, method)) == [local_digest(packed)] * 2


def test_a_server_that_cannot_be_reached_is_named(s3: dict[str, str], tmp_path: Path) -> None:
    nowhere = {
        **s3,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "FSSPEC_S3_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_MAX_ATTEMPTS": "1",
    }
    process = start(nowhere, "s3://bucket/data", tmp_path / "cache", 10**9, attempts=1)
    _, err = process.communicate(timeout=120)
    assert "DataError: s3://bucket/data/manifest.json: cannot be read, tried 1 times" in err


# A server that fails


class Flaky(SimpleHTTPRequestHandler):
    """Serves a folder; of the first GETs of each file as many fail as `failures` says, in turn by an error and by half a file."""

    failures: int
    asked: Counter[str]

    def do_GET(self) -> None:
        type(self).asked[self.path] += 1
        number = self.asked[self.path]
        if number > self.failures:
            super().do_GET()
        elif number % 2:
            self.send_error(503, "try later")
        else:
            body = Path(self.translate_path(self.path)).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def flaky(packed: Path) -> Iterator[tuple[str, type[Flaky]]]:
    handler = type("FlakyHere", (Flaky,), {"failures": 0, "asked": Counter()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(packed)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_failures_that_pass_are_waited_out(flaky: tuple[str, type[Flaky]], packed: Path, tmp_path: Path) -> None:
    url, handler = flaky
    handler.failures = 2
    cache = CacheOptions(folder=tmp_path / "cache", attempts=3)
    found = list(TokenStream(url, batch_size=7, options=StreamOptions(cache=cache)))
    expected = list(TokenStream(packed, batch_size=7))
    assert len(found) == len(expected)
    assert all(torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(found, expected, strict=True))
    shards = {path: count for path, count in handler.asked.items() if path.endswith(".arrow")}
    assert shards == dict.fromkeys((f"/packed-0000{i}-of-00003.arrow" for i in range(3)), 3)


def test_failures_that_last_are_told_with_the_shard_and_its_url(flaky: tuple[str, type[Flaky]], tmp_path: Path) -> None:
    url, handler = flaky
    stream = TokenStream(
        url,
        batch_size=7,
        shuffle=None,
        options=StreamOptions(cache=CacheOptions(folder=tmp_path / "cache", attempts=2)),
    )
    handler.failures = 1000
    with pytest.raises(DataError, match=rf"{url}/packed-00000-of-00003.arrow: cannot be read, tried 2 times \(.*\)"):
        list(stream)
    for thread in threading.enumerate():
        if thread.name == "clozeline-fetch":
            thread.join(30)
    assert not list((tmp_path / "cache").glob("*.part"))
