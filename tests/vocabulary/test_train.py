"""Tokenizers that `vocab` trains are the same for the same text and load everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import clozeline
from clozeline import RunOptions, VocabOptions

ROOT = Path(__file__).parents[2]
SERIAL = RunOptions(executor="serial")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    clozeline.shard(ROOT / "sample_data" / "corpus", folder / "text", run=SERIAL)
    return folder / "text"


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_the_same_text_gives_the_same_tokenizer(text: Path, tmp_path: Path, kind: str) -> None:
    options = VocabOptions(kind=kind, vocabulary_size=2500)
    results = [clozeline.vocab(text, tmp_path / str(i), options) for i in range(2)]
    assert results[0].sha256 == results[1].sha256
    assert results[0].vocabulary_size == 2500
    assert results[0].documents > 0


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_auto_tokenizer_loads_it_and_pack_takes_it(text: Path, tmp_path: Path, kind: str) -> None:
    from transformers import AutoTokenizer

    clozeline.vocab(text, tmp_path / "tokenizer", VocabOptions(kind=kind, vocabulary_size=2600))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    ids = tokenizer("Why leaves change")["input_ids"]
    assert ids[0] == tokenizer.cls_token_id
    assert ids[-1] == tokenizer.sep_token_id
    assert tokenizer.unk_token_id not in ids
    assert len(tokenizer(f"a {tokenizer.mask_token} b")["input_ids"]) > 3
    result = clozeline.pack(text, tmp_path / "packed", tmp_path / "tokenizer", run=SERIAL)
    assert result.rows > 0


def test_special_tokens_alone_are_special(text: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    clozeline.vocab(text, tmp_path / "t", VocabOptions(vocabulary_size=2500))
    tokenizer = Tokenizer.from_file(str(tmp_path / "t" / "tokenizer.json"))
    special = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    assert special == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_a_folder_with_anything_else_is_left_alone(text: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(clozeline.DestinationError, match=r"notes\.txt"):
            clozeline.vocab(text, tmp_path, VocabOptions(vocabulary_size=2500), force=force)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "options",
    [{"kind": "words"}, {"vocabulary_size": 20}, {"min_frequency": 0}, {"alphabet": 5}],
)
def test_bad_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(clozeline.ConfigError):
        VocabOptions(**options)
