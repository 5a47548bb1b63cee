"""Documents to sentences.

Every sentence is given to the tokenizer on its own. White space between two sentences belongs to the second, so that a byte-level
tokenizer, to which a word with a space before it is another token, gives the ids it gives for the document as a whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clozeline.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    Split = Callable[[str], list[str]]

_STRETCH = 2048  # characters: `sentencex` takes time in the square of its input on some texts


def make_splitter(how: str, language: str) -> Split:
    """A function from a document to its sentences, which make up the document when put together.

    Args:
        how: "lines" (a sentence a line) or "sentencex" (rules, for `language`).

    Raises:
        ConfigError: `sentencex` is not installed.
    """
    if how == "lines":
        return _lines
    try:
        from sentencex import segment
    except ImportError:
        raise ConfigError(
            "splitting text into sentences needs sentencex: pip install 'clozeline[sentences]', "
            "or say --sentences lines where the text has one a line"
        ) from None

    def rules(text: str) -> list[str]:
        """Long texts go in stretches; the last sentence of a stretch, which may be incomplete, begins the next one."""
        sentences: list[str] = []
        start = 0
        while len(text) - start > _STRETCH:
            stretch = text[start : start + _STRETCH]
            found = segment(language, stretch)
            # A sentence that takes more than half of a stretch ends with it: each step goes on by half a stretch at least.
            if len(found) > 1 and len(found[-1]) <= _STRETCH // 2:
                found.pop()
            sentences += found
            start += sum(map(len, found))
        return _with_white_space_first([*sentences, *segment(language, text[start:])])

    return rules


def _lines(text: str) -> list[str]:
    return _with_white_space_first(re.findall(r"[^\n]*\n|[^\n]+", text))


def _with_white_space_first(parts: list[str]) -> list[str]:
    """The same text cut before the white space between parts rather than after it; a part without anything else is no sentence."""
    sentences: list[str] = []
    pending = ""
    for part in parts:
        text = part.rstrip()
        if text:
            sentences.append(pending + text)
            pending = part[len(text) :]
        else:
            pending += part
    if pending and sentences:
        sentences[-1] += pending
    return sentences
