"""Data sets behind URLs: the same stream, each shard fetched once and checked, a cache that keeps its size."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from clozeline import CacheOptions, StreamOptions, TokenLoader, TokenStream
from clozeline.errors import ClozelineError, ConfigError, DataError
from clozeline.store.manifest import Manifest
from clozeline.streaming.cache import RemoteFolder


@pytest.fixture
def remote(packed: Path) -> Iterator[str]:
    """The data set of `packed` in fsspec's memory."""
    files = fsspec.filesystem("memory")
    for path in packed.iterdir():
        if path.is_file():
            files.pipe_file(f"/data/{path.name}", path.read_bytes())
    yield "memory://data"
    files.rm("/data", recursive=True)


def options(folder: Path, **changes: Any) -> StreamOptions:
    return StreamOptions(cache=CacheOptions(folder=folder, **changes))


def same(found: list[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(
        torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(found, expected, strict=True)
    )


def test_a_url_streams_as_the_folder_does(remote: str, packed: Path, tmp_path: Path) -> None:
    for url in (remote, f"file://{packed}"):
        for shuffle in ("global", "blocks", None):
            stream = TokenStream(url, batch_size=7, shuffle=shuffle, tail="even", options=options(tmp_path / "cache"))
            expected = list(TokenStream(packed, batch_size=7, shuffle=shuffle, tail="even"))
            assert same(list(stream), expected)


def test_workers_share_the_cache(packed: Path, tmp_path: Path) -> None:
    stream = TokenStream(f"file://{packed}", batch_size=7, tail="even", options=options(tmp_path / "cache"))
    assert same(list(TokenLoader(stream, num_workers=2)), list(TokenStream(packed, batch_size=7, tail="even")))
    kept = [p for p in (tmp_path / "cache").iterdir() if not p.suffix and p.name != "lock"]
    assert sorted(p.name for p in kept) == sorted(hashlib.sha256(p.read_bytes()).hexdigest() for p in kept)
    assert len(kept) == 3


def test_a_shard_is_fetched_once(remote: str, tmp_path: Path) -> None:
    list(TokenStream(remote, batch_size=7, options=options(tmp_path / "cache")))
    files = fsspec.filesystem("memory")
    for name in files.ls("/data", detail=False):
        if name.endswith(".arrow"):
            files.rm(name)
    assert len(list(TokenStream(remote, batch_size=7, options=options(tmp_path / "cache")))) == 14


def test_the_cache_keeps_its_size(remote: str, packed: Path, tmp_path: Path) -> None:
    sizes = sorted(p.stat().st_size for p in packed.glob("*.arrow"))
    limit = sizes[-1] + sizes[-2] + 10
    small = options(tmp_path / "cache", max_bytes=limit)
    stream = TokenStream(remote, batch_size=7, shuffle=None, tail="even", options=small)
    assert same(list(stream), list(TokenStream(packed, batch_size=7, shuffle=None, tail="even")))
    kept = [p.stat().st_size for p in (tmp_path / "cache").iterdir() if not p.suffix and p.name != "lock"]
    assert sum(kept) <= limit
    with pytest.raises(ConfigError, match=r"3 shards at once.*blocks"):
        TokenStream(remote, batch_size=7, options=small)


def test_a_damaged_shard_is_named_and_not_kept(remote: str, tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    name = "/data/packed-00001-of-00003.arrow"
    content = bytearray(files.cat_file(name))
    content[len(content) // 2] ^= 1
    files.pipe_file(name, bytes(content))
    for _ in range(2):
        with pytest.raises(DataError, match=r"memory://data/packed-00001-of-00003.arrow: .*sha256"):
            list(TokenStream(remote, batch_size=7, options=options(tmp_path / "cache")))


def test_what_is_not_there_is_named(remote: str, tmp_path: Path) -> None:
    fsspec.filesystem("memory").rm("/data/packed-00002-of-00003.arrow")
    with pytest.raises(DataError, match=r"memory://data/packed-00002-of-00003.arrow: is not there"):
        list(TokenStream(remote, batch_size=7, options=options(tmp_path / "cache")))
    for url in ("memory://elsewhere", "nonsense://data", "http://localhost:9/data"):
        with pytest.raises(ClozelineError, match=url):
            TokenStream(url, batch_size=7, options=options(tmp_path / "cache", attempts=1))


@pytest.mark.parametrize("check", ["sizes", "digests"])
def test_a_copy_in_the_cache_that_rots_is_found_where_digests_are_asked_for(
    remote: str, tmp_path: Path, check: Any
) -> None:
    cached = StreamOptions(cache=CacheOptions(folder=tmp_path / "cache"), check=check)
    assert len(list(TokenStream(remote, batch_size=7, options=cached))) == 14
    for kept in (tmp_path / "cache").iterdir():
        if not kept.suffix and kept.name != "lock":
            content = bytearray(kept.read_bytes())
            content[len(content) // 2] ^= 1
            kept.write_bytes(content)
    if check == "sizes":
        assert len(list(TokenStream(remote, batch_size=7, options=cached))) == 14
    else:
        with pytest.raises(DataError, match=r"memory://data/packed-0000\d-of-00003.arrow: its sha256"):
            list(TokenStream(remote, batch_size=7, options=cached))


def test_a_shard_that_goes_before_it_is_mapped_is_fetched_again(remote: str, packed: Path, tmp_path: Path) -> None:
    """Another process makes room just then."""
    folder = RemoteFolder(remote, CacheOptions(folder=tmp_path / "cache"))
    folder.expect(Manifest.load(folder))
    name = "packed-00000-of-00003.arrow"
    used: list[str] = []

    def use(kept: str) -> bytes:
        used.append(kept)
        if len(used) == 1:
            (tmp_path / "cache" / kept).unlink()
        return (tmp_path / "cache" / kept).read_bytes()

    assert folder._kept(name, use) == (packed / name).read_bytes()
    assert len(used) == 2


def test_what_a_killed_process_left_in_the_cache_is_removed_and_counts_for_nothing(remote: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    largest = max(f["size"] for f in fsspec.filesystem("memory").ls("/data") if f["name"].endswith(".arrow"))
    for name in ("0" * 64, "1" * 64):
        (cache / f"{name}.part").write_bytes(bytes(2 * largest))
    stream = TokenStream(
        remote, batch_size=7, shuffle=None, tail="even", options=options(cache, max_bytes=2 * largest + 10)
    )
    assert len(list(stream)) == 15
    assert not list(cache.glob("*.part"))


def test_a_cache_that_cannot_be_written_is_named(remote: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/cache: the cache cannot be used"):
        list(TokenStream(remote, batch_size=7, options=options(tmp_path / "file" / "cache")))


def test_a_program_that_ends_does_not_wait_for_shards_that_were_to_come(remote: str, tmp_path: Path) -> None:
    stream = TokenStream(remote, batch_size=7, options=options(tmp_path / "cache"))
    next(iter(stream))
    fetching = [t for t in threading.enumerate() if t.name == "clozeline-fetch"]
    assert all(t.daemon for t in fetching)
