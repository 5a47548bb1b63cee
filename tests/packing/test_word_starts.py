"""`pack --word-starts`: words as the tokenizer or jieba sees them, whatever the ids look like."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeline import (
    ConfigError,
    MaskOptions,
    MaskRule,
    PackOptions,
    RunOptions,
    ShardOptions,
    load_tokenizer,
    mask,
    prepare,
    verify,
)
from clozeline.packing.engines import Engine
from clozeline.packing.words import WordFinder, _jieba
from clozeline.store.dataset import Data
from clozeline.store.masks import mask_vocabulary

SERIAL = RunOptions(executor="serial")


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Byte-level BPE trained on the spot: Chinese characters are two or three tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat", "the words of the text"] * 9, trainer)
    folder = tmp_path_factory.mktemp("byte_level")
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(zip(("bos_token", "pad_token", "sep_token", "unk_token", "mask_token"), special, strict=True))
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


def words(tokenizer: Path, text: str, segmenter: str = "tokenizer") -> list[str]:
    """A text cut where words start; as bytes, since a character may be cut."""
    engine = Engine(load_tokenizer(tokenizer))
    ids, lengths, _ = engine.encode([text.encode()])
    starts = WordFinder(engine, segmenter).starts([text.encode()], ids, lengths)
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_str(load_tokenizer(tokenizer).json)
    assert starts[0] == 1
    pieces = np.split(ids, np.flatnonzero(starts)[1:])
    return [loaded.decode(piece.tolist(), skip_special_tokens=False) for piece in pieces]


def test_words_of_byte_level_bpe_are_those_of_its_pre_tokenizer(byte_level: Path) -> None:
    assert words(byte_level, "the cats don't sit, unfortunately") == [
        "the", " cats", " don", "'t", " sit", ",", " unfortunately",
    ]  # fmt: skip


def test_every_han_character_is_a_word_however_many_tokens_it_has(byte_level: Path) -> None:
    assert words(byte_level, "the 北京 mat我") == ["the", " ", "北", "京", " mat", "我"] or words(
        byte_level, "the 北京 mat我"
    ) == ["the", " 北", "京", " mat", "我"]


def test_jieba_gives_the_words_of_chinese(byte_level: Path) -> None:
    pytest.importorskip("jieba")
    assert words(byte_level, "我来到北京清华大学", "jieba") == ["我", "来到", "北京", "清华大学"]


@pytest.mark.filterwarnings("ignore")  # of jieba's imports
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.text("我来到北京清华大学的漢ab1+%", max_size=80), st.sampled_from("，。 \n!é")),
        min_size=1,
        max_size=40,
    )
)
def test_long_chinese_is_cut_into_the_same_words_stretch_by_stretch(parts: list[tuple[str, str]]) -> None:
    jieba = pytest.importorskip("jieba")
    text = "".join(run + mark for run, mark in parts)
    assert _jieba()(text) == jieba.lcut(text)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("unit", ["漢", "我来到北京", "a", "。", " ", "漢 "])
def test_hostile_chinese_is_cut_in_stretches_of_bounded_length(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: 100,000 times the same character, in no word with itself, took jieba 24 s and 1,000,000 a hundred times that."""
    jieba = pytest.importorskip("jieba")
    lengths: list[int] = []

    def counted(text: str) -> list[str]:
        lengths.append(len(text))
        return [text]

    monkeypatch.setattr(jieba, "lcut", counted)
    text = unit * (100_000 // len(unit))
    assert "".join(_jieba.__wrapped__()(text)) == text
    assert max(lengths) <= 512
    assert len(lengths) <= 2 + 100_000 // 256


def test_jieba_joins_the_characters_of_wordpiece(tmp_path: Path, make_wordpiece: Callable[..., Path]) -> None:
    pytest.importorskip("jieba")
    folder = make_wordpiece(tmp_path / "t", list("我来到北京清华大学"))
    assert [w.replace(" ", "") for w in words(folder, "我来到北京", "jieba")] == ["我", "来到", "北京"]


def test_a_special_token_that_was_typed_is_found_like_any_text(byte_level: Path) -> None:
    found = words(byte_level, "the <mask> cat")
    assert "".join(found) == "the <mask> cat"
    assert found[-1] == " cat"


def test_no_word_starts_no_whole_words(byte_level: Path, corpus: Path, tmp_path: Path) -> None:
    prepare(corpus, tmp_path / "o", byte_level, pack_options=PackOptions(max_length=32), run=SERIAL, static=False)
    with pytest.raises(ConfigError, match="--word-starts"):
        mask(tmp_path / "o" / "packed", tmp_path / "m", MaskOptions(rule=MaskRule(unit="word")), SERIAL)


@pytest.mark.parametrize("packing", ["concat", "documents", "best-fit"])
def test_every_scheme_of_packing_takes_them_along(byte_level: Path, corpus: Path, tmp_path: Path, packing: str) -> None:
    options = PackOptions(max_length=32, packing=packing, word_starts="tokenizer")
    masks = MaskOptions(rule=MaskRule(unit="word", selection="exact"))
    prepare(corpus, tmp_path / "o", byte_level, ShardOptions(num_shards=2), options, masks, SERIAL)
    shard = Data(tmp_path / "o" / "packed").shard(0)
    rows = np.arange(shard.entry.rows)
    ids, starts = shard.take("input_ids", rows), shard.take("word_starts", rows)
    facts = Data(tmp_path / "o" / "packed").metadata.tokenizer
    assert facts is not None
    assert not starts[np.isin(ids, facts.special_ids)].any()
    assert 0.1 < starts[~np.isin(ids, facts.special_ids)].mean() < 0.9
    result = verify(tmp_path / "o" / "masked", against=tmp_path / "o" / "packed", run=SERIAL)
    assert [c for c in result.checks if not c.ok] == []


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["bert-base-uncased", "roberta-base", "bert-base-multilingual-cased", "xlm-roberta-base-reconstructed"]
)
def test_whole_words_are_whole_and_the_token_rate_holds(shared: Path, tmp_path: Path, name: str) -> None:
    """English, Chinese and mixed text: within 0.3 points of 15 % on enough of it, here within four standard errors more."""
    for corpus_name in ("en_20mb.txt", "zh_5mb.jsonl", "multi_6mb.jsonl"):
        text = (shared / "corpora" / corpus_name).read_bytes()[:150_000].rsplit(b"\n", 1)[0] + b"\n"
        (tmp_path / corpus_name).write_bytes(text)
    sources = sorted(tmp_path.iterdir())
    options = PackOptions(word_starts=None if name.startswith("bert") else "tokenizer")
    three = ShardOptions(num_shards=3)
    prepare(sources, tmp_path / "o", shared / "tokenizers" / name, three, options, run=SERIAL, static=False)
    packed = Data(tmp_path / "o" / "packed")
    facts = packed.metadata.tokenizer
    assert facts is not None
    table = mask_vocabulary(facts, MaskRule()).maskable
    for selection in ("bernoulli", "exact"):
        rule = MaskRule(unit="word", selection=selection)
        mask(tmp_path / "o" / "packed", tmp_path / selection, MaskOptions(seed=2, rule=rule), SERIAL)
        masked = Data(tmp_path / selection)
        for i in range(3):
            maskable = sum(int(table[b["input_ids"]].sum()) for b in packed.shard(i).batches("input_ids"))
            selected = sum(int((b["labels"] != -100).sum()) for b in masked.shard(i).batches("labels"))
            assert abs(selected / maskable - 0.15) < 0.003 + 4 * np.sqrt(0.1275 * 2 / maskable)
        result = verify(tmp_path / selection, run=SERIAL)
        assert [c for c in result.checks if not c.ok] == []
