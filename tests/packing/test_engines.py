"""Engines against `tokenizers`, and special tokens that were typed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import clozeline
from clozeline.packing.engines import _HARD_STRINGS, Engine
from clozeline.packing.tokenizer import load_tokenizer

LINES = [
    f"the quick brown fox number {i} jumps over the lazy dogs, don't they? naïve café 你好 {i * i}" for i in range(200)
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
KINDS = ["wordpiece", "byte-level-bpe", "unigram"]


def save(tokenizer: Tokenizer, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True)
    config = {**dict(roles), "cls_token": "<s>", "sep_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, make_wordpiece: Callable[..., Path]) -> dict[str, Path]:
    """A small tokenizer of each family, trained here."""
    place = tmp_path_factory.mktemp("families")
    bpe = Tokenizer(models.BPE(unk_token=None))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        LINES,
        trainers.BpeTrainer(vocab_size=500, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.NFKC()
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.train_from_iterator(
        # The literals are in the text, as in the corpora that XLM-R's vocabulary was made from: a piece of its own is learnt.
        [*LINES, *["a <mask> b </s> c <s>"] * 50],
        trainers.UnigramTrainer(vocab_size=300, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False),
    )
    letters = list("abcdefghijklmnopqrstuvwxyz0123456789.,!?-'()[]<>/|#")
    return {
        "wordpiece": make_wordpiece(place / "wordpiece", [*letters, *(f"##{c}" for c in letters), "the", "##ing"]),
        "byte-level-bpe": save(bpe, place / "bpe"),
        "unigram": save(unigram, place / "unigram"),
    }


def literals(folder: Path) -> list[str]:
    body = json.loads((folder / "tokenizer.json").read_text())
    return [t["content"] for t in body["added_tokens"] if t["special"]]


@pytest.mark.parametrize("kind", KINDS)
def test_engines_give_the_same_ids_on_hard_strings(folders: dict[str, Path], kind: str) -> None:
    loaded = load_tokenizer(folders[kind])
    reference, auto = Engine(loaded, "tokenizers"), Engine(loaded, "auto")
    assert (auto.name != "tokenizers") == (kind != "unigram")
    texts = [s.encode() for s in _HARD_STRINGS]
    texts += [f"a {t} b{t}c {t[1:]} {t * 3}".encode() for t in literals(folders[kind])]
    for one, other in zip(reference.encode(texts)[:2], auto.encode(texts)[:2], strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_typed_special_token_is_ordinary_text(folders: dict[str, Path], kind: str, data: st.DataObject) -> None:
    """Whatever stands in a text, no special id comes of it but [UNK], and that never of its own literal."""
    loaded = load_tokenizer(folders[kind])
    parts = st.sampled_from([*literals(folders[kind]), "the", " ", "x", "[", "<", "\n"])
    text = "".join(data.draw(st.lists(parts, max_size=12)))
    for engine in ("tokenizers", "auto"):
        ids, lengths, _ = Engine(loaded, engine).encode([text.encode(), b"the"])
        special = set(loaded.facts.special_ids) - {loaded.facts.unk_id}
        assert not special & set(ids.tolist())
        assert lengths.sum() == len(ids)


def test_a_piece_of_the_models_own_is_split_and_counted(folders: dict[str, Path]) -> None:
    engine = Engine(load_tokenizer(folders["unigram"]), "tokenizers")
    plain, _, none = engine.encode([b"the quick brown fox"])
    ids, _, counts = engine.encode([b"the <mask> fox", b"the quick brown fox"])
    assert none["documents_with_special_literals_split"] == 0
    assert counts["documents_with_special_literals_split"] == 1
    assert ids.tolist()[-len(plain) :] == plain.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_ids_do_not_depend_on_what_is_encoded_together(folders: dict[str, Path], kind: str) -> None:
    engine = Engine(load_tokenizer(folders[kind]))
    texts = [s.encode() for s in (*_HARD_STRINGS, *LINES[:20])]
    together, lengths, _ = engine.encode(texts)
    alone = [engine.encode([t])[0] for t in texts]
    assert np.array_equal(together, np.concatenate(alone))
    assert lengths.tolist() == [len(ids) for ids in alone]


@pytest.mark.parametrize("name", ["bert-base-cased", "bert-base-uncased", "roberta-base"])
def test_accelerated_engines_agree_with_tokenizers_on_real_text(shared: Path, name: str) -> None:
    loaded = load_tokenizer(shared / "tokenizers" / name)
    lines = (shared / "corpora" / "multi_6mb.jsonl").read_text("utf-8").splitlines()[::40]
    engine = Engine(loaded, "fast")
    engine.check([json.loads(line)["text"].encode() for line in lines])


def test_tokens_are_those_of_transformers(shared: Path) -> None:
    from transformers import AutoTokenizer

    lines = (shared / "corpora" / "en_20mb.txt").read_text("utf-8")[:100_000].split("\n\n")
    for name in ("bert-base-uncased", "roberta-base"):
        theirs = AutoTokenizer.from_pretrained(shared / "tokenizers" / name)
        lines = [line for line in lines if "<unk>" not in line]  # a special token to them, text to us
        ids, _, _ = Engine(load_tokenizer(shared / "tokenizers" / name)).encode([t.encode() for t in lines])
        wanted = theirs(lines, add_special_tokens=False, verbose=False)["input_ids"]
        assert ids.tolist() == [i for part in wanted for i in part]


def test_an_engine_that_takes_no_such_tokenizer_is_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(clozeline.TokenizerError, match="--engine fast"):
        Engine(load_tokenizer(folders["unigram"]), "fast")
    with pytest.raises(clozeline.ConfigError, match="engine is 'quick'"):
        Engine(load_tokenizer(folders["unigram"]), "quick")


_NEW_WORDS = """
import random, re, sys
from pathlib import Path
from clozeline.packing.engines import Engine
from clozeline.packing.tokenizer import load_tokenizer

def mebibytes():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10

engine, draw = Engine(load_tokenizer(sys.argv[1]), "fast"), random.Random(1)
before = mebibytes()
for _ in range(12):
    engine.encode([b" ".join(b"%x" % draw.getrandbits(40) for _ in range(100_000))])
print(mebibytes() - before)
"""


def test_words_that_are_remembered_do_not_fill_the_memory(tokenizer: Path) -> None:
    """An engine remembers words; with its own limit the memory of a worker grew by 200 MB as a corpus went on."""
    pytest.importorskip("nanotoken")
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read from /proc")
    done = subprocess.run([sys.executable, "-c", _NEW_WORDS, tokenizer], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100
