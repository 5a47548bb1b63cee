"""Sentences: whole, in bounded time, with the white space where tokenizers want it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import tokens_of

import clozeline
from clozeline.packing.engines import Engine
from clozeline.packing.splitting import make_splitter
from clozeline.packing.tokenizer import load_tokenizer

HOSTILE = ("你好。", "“a. ", "a. “", "(a. ", ". ", "a", "\n", "Mr. ", '"a. b" ', "! ", "。", " ")


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet='ab .!?"“”()\n\u3002你', max_size=200), times=st.integers(1, 40))
@pytest.mark.parametrize("how", ["sentencex", "lines"])
def test_sentences_make_up_the_document(how: str, text: str, times: int) -> None:
    document = text * times
    sentences = make_splitter(how, "en")(document)
    assert "".join(sentences) == (document if document.strip() else "")
    assert all(s.strip() for s in sentences)
    assert all(not s[-1].isspace() for s in sentences[:-1])


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_is_split_stretch_by_stretch(unit: str) -> None:
    """Some texts take `sentencex` time in the square of their length: whatever the length, it is given 2,048 characters at most,
    and goes on by half of that at least."""
    text = unit * (100_000 // len(unit))
    calls: list[int] = []
    import sentencex

    real = sentencex.segment

    def counted(language: str, stretch: str) -> list[str]:
        calls.append(len(stretch))
        found: list[str] = real(language, stretch)
        return found

    sentencex.segment = counted
    try:
        make_splitter("sentencex", "en")(text)
    finally:
        sentencex.segment = real
    assert max(calls) <= 2048
    assert len(calls) <= 2 + 100_000 // 1024


def test_a_stretch_ends_no_sentence() -> None:
    sentence = "This one is of some length, so that stretches end within it. "
    assert make_splitter("sentencex", "en")(sentence * 200) == [
        sentence.strip(),
        *[" " + sentence.strip()] * 198,
        " " + sentence,
    ]


def test_the_language_matters() -> None:
    assert len(make_splitter("sentencex", "de")("Am 3. Mai kam z.B. Herr Dr. Müller. Er blieb.")) == 2


@pytest.mark.parametrize("name", ["bert-base-uncased", "roberta-base"])
def test_tokens_of_sentences_are_the_tokens_of_the_document(shared: Path, name: str) -> None:
    """A byte-level tokenizer takes a word after a space for another token than one at the beginning of a text."""
    documents = (shared / "corpora" / "en_20mb.txt").read_text("utf-8")[:400_000].split("\n\n")[:60]
    folder = shared / "tokenizers" / name
    whole, _, _ = Engine(load_tokenizer(folder), "tokenizers").encode([d.encode() for d in documents])
    options = clozeline.PackOptions(packing="sentences")
    parts = tokens_of(folder, {str(i): d for i, d in enumerate(documents)}, options)
    split = np.array([t for ids in parts.values() for t in ids])
    # A sentence may end within a word, as after "typing." in code: a few ids more. With the space of each sentence lost it
    # would be one id a sentence, ten times as many.
    common = np.bincount(whole, minlength=60_000), np.bincount(split, minlength=60_000)
    assert len(split) - np.minimum(*common).sum() < 0.004 * len(whole)
