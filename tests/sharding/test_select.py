"""Order, hold-out and de-duplication, and bytes that depend on nothing but input, options and seed."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from sharder import SERIAL, Sharder, documents_of, texts

from clozeline import InputError, ReadOptions, RunOptions, SelectOptions, ShardOptions, shard
from clozeline.sharding.files import find_files


def write_corpus(path: Path, count: int = 900) -> Path:
    path.write_text(
        "".join(f"document {n} " + "word " * (n % 13) + "\n" for n in (i % (count // 3 * 2) for i in range(count)))
    )
    return path


def files_of(path: Path | str) -> dict[str, bytes]:
    """Everything that must be the same: all but what is told of the run."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(Path(path).rglob("*")) if p.name != "run.json"}


SELECTIONS = {
    "plain": SelectOptions(),
    "shuffled": SelectOptions(seed=3, shuffle=True),
    "held-out": SelectOptions(seed=3, held_out=0.2, split="held-out"),
    "deduplicated": SelectOptions(deduplicate=True),
    "everything": SelectOptions(seed=3, shuffle=True, held_out=0.2, deduplicate=True),
}


@pytest.mark.parametrize("selection", ["plain", "everything"])
def test_bytes_do_not_depend_on_executor_or_workers(sharder: Sharder, tmp_path: Path, selection: str) -> None:
    path = write_corpus(tmp_path / "a.txt")
    runs = [SERIAL, RunOptions(workers=2)]
    made = [files_of(sharder(path, run=run, num_shards=5, select=SELECTIONS[selection])[0].path) for run in runs]
    assert made[0] == made[1]


def test_bytes_do_not_depend_on_paths_hash_seed_or_locale(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("2.txt", "10.txt", "B.txt", "a.txt", "\u00e9.txt"):
        (folder / name).write_text(f"text of {name}\n" * 3, "utf-8")
    program = (
        "import sys, clozeline; clozeline.shard(sys.argv[1], sys.argv[2], run=clozeline.RunOptions(executor='serial'), "
        "options=clozeline.ShardOptions(num_shards=3))"
    )
    made = []
    for i, (source, seed, locale) in enumerate(
        [("corpus", "1", "C"), (str(folder), "2", "C.UTF-8"), ("./corpus/../corpus", "3", "POSIX")]
    ):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONUTF8": "0"}
        subprocess.run([sys.executable, "-c", program, source, f"made{i}"], cwd=tmp_path, env=environment, check=True)
        made.append(files_of(tmp_path / f"made{i}"))
    assert made[0] == made[1] == made[2]
    order = list(dict.fromkeys(doc_id.partition(":")[0] for doc_id, _ in documents_of(tmp_path / "made0")))
    assert order == ["10.txt", "2.txt", "B.txt", "a.txt", "\u00e9.txt"]  # by the bytes of their names


def test_number_of_shards_changes_no_document(sharder: Sharder, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt")
    for selection in SELECTIONS.values():
        one, many = (sharder(path, num_shards=n, select=selection)[1] for n in (1, 7))
        assert one == many


def test_a_shuffle_is_a_permutation_that_depends_on_the_seed(sharder: Sharder, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt")
    plain, one, two = (
        sharder(path, num_shards=4, select=s)[1]
        for s in (SelectOptions(), SelectOptions(shuffle=True, seed=1), SelectOptions(shuffle=True, seed=2))
    )
    assert sorted(plain) == sorted(one) == sorted(two)
    assert plain != one != two
    neighbours = sum(abs(plain.index(a) - plain.index(b)) < 9 for a, b in itertools.pairwise(one[:200]))
    assert neighbours < 20  # 4 expected of 200 where the order is random


def test_a_document_is_on_one_side_of_the_hold_out(sharder: Sharder, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt")
    sides = {}
    for split in ("train", "held-out"):
        result, sides[split] = sharder(path, num_shards=4, select=SelectOptions(seed=5, held_out=0.25, split=split))
        assert sum(result.ledger["documents"]["dropped"].values()) == 900 - len(sides[split])
    assert sorted(sides["train"] + sides["held-out"]) == sorted(sharder(path)[1])
    assert not set(texts(sides["train"])) & set(texts(sides["held-out"]))
    assert 0.15 < len(sides["held-out"]) / 900 < 0.35
    # Its neighbours do not matter.
    shorter = tmp_path / "b.txt"
    shorter.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[1:300]))
    _, again = sharder(shorter, select=SelectOptions(seed=5, held_out=0.25, split="held-out"))
    assert set(texts(again)) <= set(texts(sides["held-out"]))


def test_the_first_of_equal_texts_is_kept(sharder: Sharder, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt")
    plain = sharder(path, num_shards=4)[1]
    result, found = sharder(path, num_shards=4, select=SelectOptions(deduplicate=True))
    first: dict[str, str] = {}
    for doc_id, text in plain:
        first.setdefault(text, doc_id)
    assert found == [(doc_id, text) for text, doc_id in first.items()]
    assert result.ledger["documents"]["dropped"] == {"duplicate": 900 - len(first)}


@pytest.mark.parametrize("select", [SelectOptions(), SelectOptions(shuffle=True)])
def test_others_read_the_shards_even_empty_ones(sharder: Sharder, tmp_path: Path, select: SelectOptions) -> None:
    datasets = pytest.importorskip("datasets")
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    result, found = sharder(path, num_shards=8, select=select)
    loaded = datasets.load_from_disk(result.path)
    assert list(zip(loaded["doc_id"], loaded["text"], strict=True)) == found
    shards = sorted(Path(result.path).glob("text-*.arrow"))
    assert len(shards) == 8
    assert sum(pa.ipc.open_stream(p.read_bytes()).read_all().num_rows for p in shards) == 2
    assert sum(datasets.Dataset.from_file(str(p)).num_rows for p in shards) == 2


def test_a_file_that_changes_while_it_is_read_is_found_out(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.txt")

    def touch(progress: object) -> None:
        with path.open("a") as file:
            file.write("more\n")

    with pytest.raises(InputError, match=r"a\.txt: changed while it was read"):
        shard(path, tmp_path / "made", ShardOptions(num_shards=3), RunOptions(executor="serial", on_progress=touch))
    assert not (tmp_path / "made").exists()


def test_names_that_are_not_utf8_are_spelled_out(sharder: Sharder, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.txt")).write_text("one\n")
    assert sharder(folder)[1] == [("caf\\xe9.txt:0", "one")]


def test_folders_links_and_special_files(sharder: Sharder, tmp_path: Path) -> None:
    folder, other = tmp_path / "corpus", tmp_path / "other"
    for place in (folder / "deep" / "deeper", other):
        place.mkdir(parents=True)
    (folder / "deep" / "deeper" / "x.txt").write_text("deep\n")
    (folder / "a.txt").write_text("a\n")
    (folder / ".hidden.txt").write_text("hidden\n")
    (other / "linked.txt").write_text("linked\n")
    (folder / "link").symlink_to(other)
    warnings: list[str] = []
    (folder / "notes.pdf").write_text("no text")
    _, found = sharder(folder, run=RunOptions(executor="serial", on_warning=warnings.append))
    assert found == [("a.txt:0", "a"), ("deep/deeper/x.txt:0", "deep"), ("link/linked.txt:0", "linked")]
    assert len(warnings) == 1
    assert "1 file of unknown format left out (notes.pdf)" in warnings[0]

    (folder / "deep" / "loop").symlink_to(folder)
    with pytest.raises(InputError, match="is the same folder as"):
        sharder(folder)
    (folder / "deep" / "loop").unlink()
    os.mkfifo(folder / "pipe.txt")
    with pytest.raises(InputError, match=r"pipe\.txt: not a regular file"):
        sharder(folder)
    (folder / "pipe.txt").unlink()
    (folder / "broken.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"broken\.txt: cannot be read \(No such file"):
        sharder(folder)
    (folder / "broken.txt").unlink()
    with pytest.raises(InputError, match="name it once"):
        sharder(folder, folder / "a.txt")


def test_a_glob_takes_folders_too(sharder: Sharder, tmp_path: Path) -> None:
    for name in ("x1/a.txt", "x2/deep/b.txt", "y/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    assert texts(sharder(str(tmp_path / "x*"))[1]) == ["x1/a.txt", "x2/deep/b.txt"]
    with pytest.raises(InputError, match="no such file or folder"):
        sharder(str(tmp_path / "z*"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root, to become somebody else")
def test_what_cannot_be_read_is_an_error_not_a_smaller_corpus(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    (folder / "closed").mkdir(parents=True)
    (folder / "closed" / "a.txt").write_text("a\n")
    (folder / "b.txt").write_text("b\n")
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_mode & 0o005 != 0o005:
            place.chmod(place.stat().st_mode | 0o005)
    for target, what in ((folder / "closed", "closed: cannot be read"), (folder / "b.txt", "b.txt: no permission")):
        target.chmod(0)
        reader, writer = os.pipe()
        if not os.fork():
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            try:
                find_files([str(folder)], str)
                os.write(writer, b"nothing was raised")
            except BaseException as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.close(writer)
        os.wait()
        assert what in os.read(reader, 10_000).decode()
        os.close(reader)
        target.chmod(0o755)


def test_one_document_larger_than_every_shard(sharder: Sharder, tmp_path: Path) -> None:
    """5 MB in one document, 8 shards: every word in order, once."""
    words = [f"w{i}" for i in range(700_000)]
    path = tmp_path / "a.txt"
    path.write_text(" ".join(words))
    result, found = sharder(path, num_shards=8)
    assert (len(found), result.shards) == (1, 8)
    assert found[0][1].split() == words


def test_options_are_checked() -> None:
    for options in (
        {"documents": ("pages",)},
        {"errors": "ignore"},
        {"max_document_bytes": 10},
        {"max_compression_ratio": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(options))):
            ReadOptions(**options)
    for options in ({"seed": -1}, {"held_out": 1.0}, {"split": "test"}, {"split": "held-out"}):
        with pytest.raises(ValueError, match=next(iter(options)).replace("_", ".")):
            SelectOptions(**options)
