"""Optional cleaning of documents, each step off by default and counted: what it changed, or what it dropped."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from clozeline.errors import ConfigError
from clozeline.store.documents import Documents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from clozeline.sharding.options import CleanOptions
    from clozeline.store.documents import DocumentSource
    from clozeline.store.ledger import Ledger

# Cc but tab, line feed and carriage return; the byte order mark and the other noncharacters; private use is left.
_CONTROLS = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\ufeff\\ufffe\\uffff\\ufdd0-\\ufdef]")
# Bounded repetitions without nesting: the time for a document is linear in its length.
_SCRUBBED = {
    "urls": (re.compile(r"\b(?:https?|ftp)://[^\s<>\"']{1,2000}|\bwww\.[^\s<>\"']{1,2000}", re.IGNORECASE), "<url>"),
    "emails": (re.compile(r"[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}"), "<email>"),
    "numbers": (re.compile(r"\d(?:[ ().\-/]{0,2}\d){6,29}"), "<number>"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaned:
    """The documents of a source, cleaned."""

    source: DocumentSource
    options: CleanOptions

    @property
    def shards(self) -> tuple[int, ...]:
        return self.source.shards

    def read(self) -> Iterator[tuple[int, Ledger, Iterator[Documents]]]:
        for shard, ledger, documents in self.source.read():
            yield shard, ledger, self._cleaned(documents, ledger)

    def _cleaned(self, stream: Iterable[Documents], ledger: Ledger) -> Iterator[Documents]:
        changes, options = _changes(self.options), self.options
        language = _languages() if options.keep_languages else None
        for documents in stream:
            ids: list[str] = []
            texts: list[bytes] = []
            for doc_id, raw in zip(documents.ids, documents.texts, strict=True):
                text = raw.decode()
                for name, change in changes:
                    changed = change(text)
                    if changed != text:
                        ledger.counts[f"documents_{name}"] += 1
                        text = changed
                reason = None
                if not text or text.isspace():
                    reason = "blank"
                elif len(text) < options.min_characters:
                    reason = "too_short"
                elif options.max_characters is not None and len(text) > options.max_characters:
                    reason = "too_long"
                elif language is not None and language(text) not in options.keep_languages:
                    reason = "other_language"
                if reason is None:
                    ids.append(doc_id)
                    texts.append(text.encode())
                else:
                    ledger.documents.dropped[reason] += 1
                    ledger.documents.out -= 1
            yield Documents(ids, texts)


def _changes(options: CleanOptions) -> list[tuple[str, Callable[[str], str]]]:
    """The changes that are asked for, in the order in which they are made, by what the ledger calls them."""
    changes: list[tuple[str, Callable[[str], str]]] = []
    if options.repair:
        ftfy = needed("ftfy", "repair")
        # Repair of mojibake alone: quotes, ligatures, width and newlines are the author's.
        config = ftfy.TextFixerConfig(
            unescape_html=False,
            remove_terminal_escapes=False,
            fix_latin_ligatures=False,
            fix_character_width=False,
            uncurl_quotes=False,
            fix_line_breaks=False,
            remove_control_chars=False,
            normalization=None,
            explain=False,
        )
        changes.append(("repaired", lambda text: str(ftfy.fix_text(text, config))))
    if options.normalize is not None:
        form = options.normalize
        changes.append(("normalized", lambda text: unicodedata.normalize(form, text)))
    if options.remove_controls:
        changes.append(("with_controls_removed", lambda text: _CONTROLS.sub("", text)))
    for kind in options.scrub:
        pattern, mark = _SCRUBBED[kind]
        changes.append((f"with_{kind}_scrubbed", partial(pattern.sub, mark)))
    return changes


@cache
def _languages() -> Callable[[str], str]:
    """The most likely language of a text, by its first 2,000 characters."""
    langid = needed("py3langid", "keep_languages")
    return lambda text: str(langid.classify(text[:2000])[0])


def needed(package: str, option: str) -> Any:
    """A package of the extra `text`.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise ConfigError(f"{option} needs {package}: pip install 'clozeline[text]'") from error
