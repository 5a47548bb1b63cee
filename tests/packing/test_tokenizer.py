"""Tokenizer folders as they are found in the world: what is read of them, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from packed import SERIAL, read_rows, write_text

import clozeline
from clozeline.packing.tokenizer import load_tokenizer
from clozeline.store.dataset import Data
from clozeline.store.manifest import TokenizerFacts


def change(folder: Path, **changes: Any) -> None:
    """Changes fields of tokenizer.json."""
    file = folder / "tokenizer.json"
    body = json.loads(file.read_text())
    for name, value in changes.items():
        body[name] = value(body[name]) if callable(value) else value
    file.write_text(json.dumps(body))


def test_roles_and_ids_of_published_tokenizers(shared: Path) -> None:
    def facts(name: str) -> TokenizerFacts:
        return load_tokenizer(shared / "tokenizers" / name).facts

    bert = facts("bert-base-uncased")
    assert (bert.pad_id, bert.unk_id, bert.mask_id, bert.separator_id) == (0, 100, 103, 102)
    assert (bert.prefix_ids, bert.suffix_ids, bert.vocabulary_size) == ((101,), (102,), 30522)
    assert bert.special_ids == (0, 100, 101, 102, 103)
    roberta = facts("roberta-base")
    assert (roberta.prefix_ids, roberta.suffix_ids, roberta.mask_id, roberta.vocabulary_size) == (
        (0,),
        (2,),
        50264,
        50265,
    )
    for known in (bert, roberta):
        ordinary = [i for a, b in known.ordinary_ranges for i in range(a, b + 1)]
        assert not set(ordinary) & set(known.special_ids)
        assert max(ordinary) < known.vocabulary_size


def test_a_file_and_its_folder_are_the_same_tokenizer(tokenizer: Path) -> None:
    assert load_tokenizer(tokenizer).facts == load_tokenizer(tokenizer / "tokenizer.json").facts


def test_holes_in_the_vocabulary_are_no_ids_and_the_largest_id_counts(
    tmp_path: Path, make_wordpiece: Callable[..., Path]
) -> None:
    """{a: 0, b: 1, [UNK]: 7, [MASK]: 9}: `vocab_size` would say 4, `len` as well."""
    folder = make_wordpiece(tmp_path, ["a", "b"])
    ids = {"a": 0, "b": 1, "[UNK]": 7, "[MASK]": 9, "[PAD]": 12, "[CLS]": 15, "[SEP]": 20}
    change(
        folder,
        model=lambda m: {**m, "vocab": ids},
        added_tokens=lambda tokens: [{**t, "id": ids[t["content"]]} for t in tokens],
        post_processor=lambda p: {
            **p,
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")},
        },
    )
    facts = load_tokenizer(folder).facts
    assert facts.vocabulary_size == 21
    assert facts.ordinary_ranges == ((0, 1),)
    assert facts.special_ids == (7, 9, 12, 15, 20)


@pytest.mark.parametrize(("size", "width"), [(65_530, pa.uint16()), (65_536, pa.uint16()), (65_537, pa.uint32())])
def test_integers_are_as_wide_as_the_largest_id_needs(
    size: int, width: pa.DataType, tmp_path: Path, make_wordpiece: Callable[..., Path]
) -> None:
    """The vocabulary's own ids end at `size` - 1; of those beyond 65,535 none may wrap."""
    folder = make_wordpiece(tmp_path / "tokenizer", [f"w{i}" for i in range(size - 5)])
    last = f"w{size - 6}"
    text = write_text(tmp_path, [f"{last} w0"] * 5)
    clozeline.pack(text, tmp_path / "packed", folder, clozeline.PackOptions(max_length=8), SERIAL)
    assert Data(tmp_path / "packed").shard(0).types["input_ids"].value_type == width
    assert size - 1 in {i for row in read_rows(tmp_path / "packed") for i in row.ids}


def test_added_tokens_count_towards_the_width(tmp_path: Path, make_wordpiece: Callable[..., Path]) -> None:
    folder = make_wordpiece(tmp_path / "tokenizer", [f"w{i}" for i in range(65_525)])
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    added = [{"id": 65_530 + i, "content": f"added{i}", **plain} for i in range(20)]
    change(folder, added_tokens=lambda tokens: tokens + added)
    assert load_tokenizer(folder).facts.vocabulary_size == 65_550
    text = write_text(tmp_path, ["w3 added19 added5"] * 3)
    clozeline.pack(text, tmp_path / "packed", folder, clozeline.PackOptions(max_length=8), SERIAL)
    assert Data(tmp_path / "packed").shard(0).types["input_ids"].value_type == pa.uint32()
    assert {65_549, 65_535} <= {i for row in read_rows(tmp_path / "packed") for i in row.ids}


@pytest.mark.parametrize("engine", ["auto", "tokenizers"])
def test_truncation_and_padding_set_in_the_file_change_nothing(
    engine: str, tmp_path: Path, make_wordpiece: Callable[..., Path]
) -> None:
    words = [f"w{i}" for i in range(50)]
    plain = make_wordpiece(tmp_path / "plain", words)
    cutting = make_wordpiece(
        tmp_path / "cutting",
        words,
        truncation={"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0},
        padding={
            "strategy": {"Fixed": 16},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
    )
    text = write_text(tmp_path, [" ".join(words), "w1", " ".join(words[:7])])
    for name, folder in (("a", plain), ("b", cutting)):
        clozeline.pack(text, tmp_path / name, folder, clozeline.PackOptions(max_length=16), SERIAL, engine=engine)
    assert [r.ids for r in read_rows(tmp_path / "a")] == [r.ids for r in read_rows(tmp_path / "b")]
    assert Data(tmp_path / "b").manifest.ledger.tokens.taken == 58


@pytest.mark.parametrize(
    ("token", "what"),
    [
        ("[MASK]", "has no mask token"),
        ("[PAD]", "has no padding token"),
        ("[SEP]", "neither a separator nor an end token"),
    ],
)
def test_a_tokenizer_without_what_rows_need_is_refused(
    token: str, what: str, tmp_path: Path, make_wordpiece: Callable[..., Path]
) -> None:
    folder = make_wordpiece(tmp_path, ["a"])
    (folder / "tokenizer_config.json").write_text("{}")
    change(
        folder,
        model=lambda m: {**m, "vocab": {("x" if t == token else t): i for t, i in m["vocab"].items()}},
        added_tokens=lambda tokens: [t for t in tokens if t["content"] != token],
        post_processor=None,
    )
    with pytest.raises(clozeline.TokenizerError, match=what):
        load_tokenizer(folder)


def test_what_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(clozeline.TokenizerError, match="no such tokenizer folder"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(clozeline.TokenizerError, match=r"has no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(clozeline.TokenizerError, match="cannot be read"):
        load_tokenizer(tmp_path)
    with pytest.raises(clozeline.TokenizerError, match="name is empty"):
        load_tokenizer("")


def test_a_hub_that_cannot_be_asked_is_not_one_without_the_tokenizer() -> None:
    """Without a network each of seven files was asked for in turn, 24 seconds each, and then the hub was said not to have it."""
    with pytest.raises(clozeline.TokenizerError, match="no-such-model: no such folder, and not to be had from the hub"):
        load_tokenizer("no-such-model")


def test_the_template_may_be_of_any_length(tmp_path: Path, make_wordpiece: Callable[..., Path]) -> None:
    token = [{"SpecialToken": {"id": t, "type_id": 0}} for t in ("[CLS]", "[SEP]")]
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    special = {t: {"id": t, "ids": [2 + i], "tokens": [t]} for i, t in enumerate(("[CLS]", "[SEP]"))}
    processor = {
        "type": "TemplateProcessing",
        "single": [*token, sequence, *token],
        "pair": [sequence, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": special,
    }
    folder = make_wordpiece(tmp_path / "t", ["a", "b"], post_processor=processor)
    facts = load_tokenizer(folder).facts
    assert (facts.prefix_ids, facts.suffix_ids, facts.pair_ids) == ((2, 3), (2, 3), (3,))
    text = write_text(tmp_path, ["a b a b a"], shards=1)
    clozeline.pack(text, tmp_path / "packed", folder, clozeline.PackOptions(max_length=8), SERIAL)
    ids = [r.ids for r in read_rows(tmp_path / "packed")]
    assert np.array_equal(ids, [[2, 3, 5, 6, 5, 6, 2, 3], [2, 3, 5, 2, 3, 0, 0, 0]])
