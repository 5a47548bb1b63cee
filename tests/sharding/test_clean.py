"""Cleaning: off by default, each step counted, and no document quietly gone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sharder import SERIAL, Sharder, texts

from clozeline import CleanOptions, RunOptions, SelectOptions, ShardOptions, shard
from clozeline.sharding.select import near_keys


def clean(folder: Path, lines: list[str], **options: object) -> tuple[dict[str, object], list[str]]:
    from sharder import documents_of

    source, dest = folder / "a.txt", folder / f"made-{time.monotonic_ns()}"
    source.write_text("\n".join(lines) + "\n", "utf-8")
    result = shard(source, dest, ShardOptions(num_shards=2, clean=CleanOptions(**options)), SERIAL)
    account = result.ledger["documents"]
    assert account["in"] + sum(account["added"].values()) == account["out"] + sum(account["dropped"].values())
    return result.ledger, texts(documents_of(dest))


def test_nothing_is_changed_by_default(tmp_path: Path) -> None:
    lines = [
        "schÃ¶n \u201cquoted\u201d ﬁ",
        "a\x07b\ufeffc",
        "e\u0301",
        "x",
        "mail me@example.org or https://example.org +49 30 1234567",
    ]
    assert clean(tmp_path, lines)[1] == lines


def test_mojibake_is_repaired_and_nothing_else(tmp_path: Path) -> None:
    ledger, found = clean(tmp_path, ["schÃ¶n", "\u201cquoted\u201d ﬁ &amp; Ｗ", "fine"], repair=True)
    assert found == ["schön", "\u201cquoted\u201d ﬁ &amp; Ｗ", "fine"]
    assert ledger["counts"]["documents_repaired"] == 1


@pytest.mark.parametrize(
    ("form", "expected"), [("NFC", "é ﬁ"), ("NFD", "e\u0301 ﬁ"), ("NFKC", "é fi"), ("NFKD", "e\u0301 fi")]
)
def test_normalisation_forms(tmp_path: Path, form: str, expected: str) -> None:
    ledger, found = clean(tmp_path, ["e\u0301 ﬁ", "plain"], normalize=form)
    assert found == [expected, "plain"]
    assert ledger["counts"].get("documents_normalized", 0) == (expected != "e\u0301 ﬁ")


def test_controls_go_and_white_space_stays(tmp_path: Path) -> None:
    ledger, found = clean(tmp_path, ["a\x07b\ufeffc\td\x85e\ufdd0", "\x01\x02", "\u200dzwj é"], remove_controls=True)
    assert found == ["abc\tde", "\u200dzwj é"]
    assert ledger["documents"]["dropped"] == {"blank": 1}


def test_personal_data_is_scrubbed_by_kind(tmp_path: Path) -> None:
    lines = [
        "Write to jane.doe+news@mail.example.co.uk, or call +49 (30) 123-45-67.",
        "See https://user:pass@example.org/a?b=c#d and www.example.org now.",
        "In 1984 there were 123456 of them, 3.14 each.",
    ]
    _, found = clean(tmp_path, lines, scrub=("urls", "emails", "numbers"))
    assert found == ["Write to <email>, or call +<number>.", "See <url> and <url> now.", lines[2]]
    ledger, found = clean(tmp_path, lines, scrub=("emails",))
    assert found[0] == "Write to <email>, or call +49 (30) 123-45-67."
    assert ledger["counts"]["documents_with_emails_scrubbed"] >= 1


@pytest.mark.parametrize("text", ["a." * 50_000 + "@", "1 " * 50_000, "http://" * 20_000, "x@" * 50_000, "1" * 100_000])
def test_scrubbing_takes_no_quadratic_time(tmp_path: Path, text: str) -> None:
    """The same, ten times longer, must take no more than thirty times as long (a quadratic pattern takes a hundred)."""
    taken = []
    for factor in (1, 10):
        began = time.process_time()
        clean(tmp_path, [text[: len(text) // 10 * factor]], scrub=("urls", "emails", "numbers"))
        taken.append(time.process_time() - began)
    assert taken[1] < 30 * taken[0] + 0.5


def test_length_limits_are_in_characters(tmp_path: Path) -> None:
    ledger, found = clean(tmp_path, ["é" * 3, "é" * 4, "é" * 5, "é" * 6], min_characters=4, max_characters=5)
    assert [len(t) for t in found] == [4, 5]
    assert ledger["documents"]["dropped"] == {"too_short": 1, "too_long": 1}


def test_other_languages_are_dropped(tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    lines = [
        "This is a sentence in the English language, about nothing in particular.",
        "Dies ist ein Satz in deutscher Sprache, der von nichts Besonderem handelt.",
        "Ceci est une phrase en français qui ne parle de rien de particulier.",
        "这是一个中文句子,没有什么特别的内容。",
    ]
    ledger, found = clean(tmp_path, lines, keep_languages=("en", "zh"))
    assert found == [lines[0], lines[3]]
    assert ledger["documents"]["dropped"] == {"other_language": 2}


WORDS = [f"word{i * 7919 % 1000}" for i in range(200)]


def test_near_duplicates_are_dropped_whatever_the_workers(sharder: Sharder, tmp_path: Path) -> None:
    pytest.importorskip("datasketch")
    original = " ".join(WORDS)
    edited = " ".join([*WORDS[:100], "changed", *WORDS[101:]])
    other = " ".join(WORDS[::-1])
    path = tmp_path / "a.txt"
    path.write_text("\n".join([original, "short one", other, edited, "short one", original.upper()]) + "\n")
    for run in (SERIAL, RunOptions(workers=2)):
        result, found = sharder(path, num_shards=3, run=run, select=SelectOptions(near_duplicates=True))
        assert texts(found) == [original, "short one", other]
        assert result.ledger["documents"]["dropped"] == {"near_duplicate": 3}


def test_unlike_documents_share_no_key() -> None:
    pytest.importorskip("datasketch")
    keys = [set(near_keys(" ".join(f"w{(i * k) % 997}" for i in range(1, 150)).encode())) for k in (1, 3, 7, 11)]
    assert not any(keys[i] & keys[j] for i in range(4) for j in range(i))


def test_options_of_cleaning_are_checked() -> None:
    for options in (
        {"normalize": "NFX"},
        {"scrub": ("names",)},
        {"min_characters": -1},
        {"max_characters": 3, "min_characters": 4},
        {"keep_languages": ("english",)},
    ):
        with pytest.raises(ValueError, match=next(iter(options))):
            CleanOptions(**options)
