"""How input is read and selected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from clozeline.errors import ConfigError
from clozeline.sharding.encoding import AUTO, named

Mode = Literal["lines", "blank-lines", "files", "wiki"]
MODES = ("lines", "blank-lines", "files", "wiki")
WIKI_FILE = re.compile(r"(?:.*[/_])?wiki_\d+(?:\.(?:gz|zst|bz2|xz))?")  # what WikiExtractor calls its files


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions:
    """What a document is, and what to do about bad ones.

    Attributes:
        documents: how .txt files hold documents: "lines" (one a line), "blank-lines" (separated by blank lines), "files" (one a
            file) or "wiki" (the <doc> elements of WikiExtractor); an item "MODE:GLOB" holds for the files whose name matches.
            The last that fits decides. Files called wiki_NN are "wiki" unless a GLOB says otherwise.
        encoding: of text, JSONL and CSV files: "utf-8", a name that Python knows, or "auto" (found out for each file).
        text_field: column or key of the text in JSONL, CSV, TSV, Parquet and Arrow.
        errors: for documents that are not valid: "strict" stops, "skip" drops and counts them, "replace" puts U+FFFD
            for invalid bytes, counted too.
        max_document_bytes: a longer document is cut at white space into several; bounds the memory of a worker.
        max_compression_ratio: how many times its bytes on disk a compressed file may grow to (beyond 64 MiB, below which it may
            grow as it likes).
    """

    documents: tuple[str, ...] = ("lines",)
    encoding: str = "utf-8"
    text_field: str = "text"
    errors: Literal["strict", "skip", "replace"] = "strict"
    max_document_bytes: int = 64 * 2**20
    max_compression_ratio: int = 250

    def __post_init__(self) -> None:
        for item in self.documents:
            if item.partition(":")[0] not in MODES:
                raise ConfigError(f"documents is {item!r}: use {', '.join(MODES)}, alone or as MODE:GLOB")
        if self.encoding != AUTO:
            named(self.encoding)
        if self.errors not in ("strict", "skip", "replace"):
            raise ConfigError(f"errors is {self.errors!r}: use strict, skip or replace")
        if self.max_document_bytes < 1024:
            raise ConfigError(f"max_document_bytes is {self.max_document_bytes}: at least 1024 is needed")
        if self.max_compression_ratio < 1:
            raise ConfigError(f"max_compression_ratio is {self.max_compression_ratio}: at least 1 is needed")

    def mode(self, name: str) -> Mode:
        """The document mode of a text file."""
        wiki = WIKI_FILE.fullmatch(name)
        result = "wiki" if wiki else "lines"
        for item in self.documents:
            mode, _, pattern = item.partition(":")
            if fnmatchcase(name, pattern) if pattern else not wiki:
                result = mode
        return result  # type: ignore[return-value]


FORMS = ("NFC", "NFD", "NFKC", "NFKD")
SCRUBS = ("urls", "emails", "numbers")


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanOptions:
    """How documents are changed or dropped before they are selected; nothing of it by default.

    Attributes:
        repair: mend mojibake (UTF-8 that was once read as something else) with `ftfy`.
        normalize: a Unicode normalisation form: "NFC", "NFD", "NFKC" or "NFKD".
        remove_controls: remove control characters but tab, line feed and carriage return, byte order marks and noncharacters.
        scrub: of "urls", "emails" and "numbers" (of seven digits and more, as telephone and account numbers have): put <url>,
            <email> or <number> in their place. A pattern finds what looks like one: this is no guarantee of anonymity.
        min_characters, max_characters: drop documents that are shorter or longer; None for no maximum.
        keep_languages: ISO 639-1 codes ("en", "de", ...); drop documents in another language, as `py3langid` finds it.
    """

    repair: bool = False
    normalize: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = None
    remove_controls: bool = False
    scrub: tuple[str, ...] = ()
    min_characters: int = 0
    max_characters: int | None = None
    keep_languages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.normalize is not None and self.normalize not in FORMS:
            raise ConfigError(f"normalize is {self.normalize!r}: use {', '.join(FORMS)}")
        for kind in self.scrub:
            if kind not in SCRUBS:
                raise ConfigError(f"scrub is {kind!r}: use {', '.join(SCRUBS)}")
        if self.min_characters < 0 or (self.max_characters or self.min_characters) < self.min_characters:
            raise ConfigError(
                f"min_characters is {self.min_characters}, max_characters {self.max_characters}: no document fits"
            )
        for code in self.keep_languages:
            if not (len(code) == 2 and code.isascii() and code.islower()):
                raise ConfigError(f"keep_languages is {code!r}: use codes of two letters, such as en")


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectOptions:
    """Which documents are kept, and in what order.

    Attributes:
        seed: of the shuffle and of the hold-out.
        shuffle: a global shuffle of all documents; else their order in the input.
        held_out: share of the documents set apart, chosen by a hash of the text: a document's side never depends on
            its neighbours, and equal texts fall on the same side.
        split: which side this data set is: "train" (the rest) or "held-out".
        deduplicate: keep the first of equal texts.
        near_duplicates: drop documents that share most of their words, in order, with an earlier one (see `near_keys`).
    """

    seed: int = 0
    shuffle: bool = False
    held_out: float = 0.0
    split: Literal["train", "held-out"] = "train"
    deduplicate: bool = False
    near_duplicates: bool = False

    @property
    def removes_duplicates(self) -> bool:
        return self.deduplicate or self.near_duplicates

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed is {self.seed}: it lies between 0 and 2**64 - 1")
        if not 0.0 <= self.held_out < 1.0:
            raise ConfigError(f"held_out is {self.held_out}: a share lies between 0 and 1")
        if self.split not in ("train", "held-out"):
            raise ConfigError(f"split is {self.split!r}: use train or held-out")
        if self.split == "held-out" and not self.held_out:
            raise ConfigError("split is held-out, but held_out is 0: say what share to hold out, for instance 0.01")
