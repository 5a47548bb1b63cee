"""Where words start: the column `word_starts`, for masking whole words under tokenizers whose ids do not tell.

A word is what the tokenizer's own pre-tokenizer takes for one (its word ids). Between Han characters, which stand without
blanks, every character starts a word, as in BERT's Chinese models; or the words are those of a segmenter (jieba: whole-word masking
of Cui et al. 2021, "Pre-Training with Whole Word Masking for Chinese BERT", section 3.1).

Shapes: T tokens of D texts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import ConfigError, TokenizerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from clozeline.packing.engines import Engine

SEGMENTERS = ("tokenizer", "jieba")
_HAN = (  # the ranges that BERT's tokenizer sets apart
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
_STRETCH = 512  # characters: `jieba` takes time in the square of a run of characters that it has no words for
# Up to something that no word of jieba holds (its words are of letters, digits and these signs), else cut hard.
_STRETCHES = re.compile(rf"(?s).{{1,{_STRETCH}}}(?=[^\w+#&.%-]|\Z)|.{{1,{_STRETCH}}}")
_BLANKS = np.array([0x20, 0x0A, 0x09, 0x0D, 0xA0, 0x3000], np.uint32)


class WordFinder:
    """Finds where words start among the tokens of texts.

    Args:
        engine: that made the ids.
        segmenter: "tokenizer", or "jieba" for Chinese.

    Raises:
        ConfigError: jieba is not installed.
    """

    def __init__(self, engine: Engine, segmenter: str) -> None:
        self._engine = engine
        self._cut = _jieba() if segmenter == "jieba" else None

    def starts(self, texts: list[bytes], ids: NDArray[np.uint32], lengths: NDArray[np.int64]) -> NDArray[np.uint8]:
        """uint8 (T,): 1 at the first token of each word.

        Args:
            texts, ids, lengths: what the engine took and gave.
        """
        strings = [text.decode() for text in texts]
        ends = np.cumsum(lengths)
        parts = []
        for i, encoding in enumerate(self._engine.with_offsets.encode_batch(strings, add_special_tokens=False)):
            wanted = ids[ends[i] - lengths[i] : ends[i]]
            found = encoding
            if not np.array_equal(
                np.array(found.ids, np.uint32), wanted
            ):  # it holds a special literal, which was split
                found = self._engine.splitting_with_offsets.encode(strings[i], add_special_tokens=False)
                if not np.array_equal(np.array(found.ids, np.uint32), wanted):
                    raise TokenizerError(
                        f"the words of {strings[i][:200]!r} cannot be found: `tokenizers` gives other ids for it"
                    )
            parts.append(self._of_text(strings[i], found))
        return np.concatenate(parts) if parts else np.empty(0, np.uint8)

    def _of_text(self, text: str, encoding: Any) -> NDArray[np.uint8]:
        count = len(encoding.ids)
        if not count:
            return np.empty(0, np.uint8)
        words = np.array([-1 - i if word is None else word for i, word in enumerate(encoding.word_ids)], np.int64)
        starts = np.ones(count, np.uint8)
        starts[1:] = words[1:] != words[:-1]
        letters = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        han = np.zeros(len(letters), bool)
        for low, high in _HAN:
            han |= (letters >= low) & (letters <= high)
        if not han.any():
            return starts
        segments = np.arange(len(letters)) if self._cut is None else _segments(self._cut(text), len(letters))
        begin, end = np.array(encoding.offsets, np.int64).T
        begin = np.minimum(begin, len(letters) - 1)
        blank = np.isin(letters[begin], _BLANKS) & (begin + 1 < end)
        begin = begin + blank
        last = np.maximum(end - 1, begin)
        before, here = han[last[:-1]], han[begin[1:]]
        # A token that goes on with the character of the one before (a byte of it) never starts a word.
        apart = (segments[begin[1:]] != segments[last[:-1]]) & (begin[1:] > last[:-1])
        starts[1:] = np.where(before & here, apart, np.where(before | here, begin[1:] > last[:-1], starts[1:]))
        return starts


def _segments(words: list[str], size: int) -> NDArray[np.int64]:
    """Of each character of a text the number of its word."""
    segments = np.repeat(np.arange(len(words)), [len(word) for word in words])
    if len(segments) != size:
        raise TokenizerError("jieba gave words that do not add up to the text; please report this text")
    return segments


@lru_cache(maxsize=1)
def _jieba() -> Callable[[str], list[str]]:
    try:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its imports and its regular expressions
            import jieba
    except ImportError as error:
        raise ConfigError("--word-starts jieba needs jieba: pip install 'clozeline[zh]'") from error
    jieba.setLogLevel(60)
    cut: Callable[[str], list[str]] = jieba.lcut
    return lambda text: [word for stretch in _STRETCHES.findall(text) for word in cut(stretch)]
