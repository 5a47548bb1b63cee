"""How text becomes rows: the options of stage `pack`, which check themselves and one another."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from clozeline.errors import ConfigError
from clozeline.packing.words import SEGMENTERS
from clozeline.store.schema import MAX_ROW_LENGTH

SCHEMES = ("concat", "sentences", "doc-sentences", "documents", "best-fit", "pairs")
_BY_SENTENCES = ("sentences", "doc-sentences", "pairs")
_RAGGED = ("doc-sentences", "documents", "pairs")  # rows as long as what they hold
_ONLY_FOR: dict[str, tuple[str, ...]] = {  # options that other schemes have no use for
    "sentences": _BY_SENTENCES,
    "language": _BY_SENTENCES,
    "boundaries": tuple(scheme for scheme in SCHEMES if scheme != "pairs"),
    "separator": ("concat", "sentences", "best-fit"),
    "add_prefix": ("concat", "sentences", "best-fit"),
    "remainder": ("concat", "sentences"),
    "min_tokens": ("documents",),
    "stride": ("documents",),
    "objective": ("pairs",),
    "pair_copies": ("pairs",),
    "short_sequence_prob": ("pairs",),
    "seed": ("pairs",),
    "bins": _RAGGED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PackOptions:
    """How text becomes rows. `docs/pack.md` defines each scheme.

    Attributes:
        max_length: L, positions per row, the template's included.
        packing: the scheme, one of `SCHEMES`.
        boundaries: add `document_lengths` to each row.
        provenance: write which document every part of every row comes from.
        separator: put the separator token between documents of a row.
        add_prefix: begin every document in a row with the template's prefix, not only the row.
        remainder: "pad" or "drop" the last row of a shard when it is not full.
        min_document_tokens: documents with fewer tokens are dropped.
        max_document_tokens: of longer documents only that many tokens are kept.
        min_tokens: pieces of a document after its first are dropped when they have fewer tokens that are not in the piece before.
        stride: tokens that a piece repeats of the piece before it.
        sentences: "sentencex" splits by rule and `language`; "lines" where each line is a sentence.
        language: ISO 639-1 code.
        objective: "nsp" (is B the next segment, or one of another document?) or "sop" (are A and B in order?).
        pair_copies: how many times pairs are drawn from the whole text.
        short_sequence_prob: share of pairs whose length is drawn at random, so that short ones occur.
        seed: of the pairs, 0 to 2**64 - 1.
        bins: row lengths; each row goes to the shortest that holds it. Empty for none; the longest is `max_length`.
        word_starts: add the column `word_starts`: words of the "tokenizer", or of "jieba" for Chinese.
    """

    max_length: int = 512
    packing: str = "concat"
    boundaries: bool = False
    provenance: bool = False
    separator: bool = True
    add_prefix: bool = False
    remainder: Literal["pad", "drop"] = "pad"
    min_document_tokens: int = 1
    max_document_tokens: int | None = None
    min_tokens: int = 1
    stride: int = 0
    sentences: Literal["sentencex", "lines"] = "sentencex"
    language: str = "en"
    objective: Literal["nsp", "sop"] = "nsp"
    pair_copies: int = 1
    short_sequence_prob: float = 0.1
    seed: int = 0
    bins: tuple[int, ...] = ()
    word_starts: str | None = None

    def __post_init__(self) -> None:
        if self.word_starts not in (None, *SEGMENTERS):
            raise ConfigError(f"word_starts is {self.word_starts!r}: use {' or '.join(SEGMENTERS)}, or nothing")
        if self.packing not in SCHEMES:
            raise ConfigError(f"packing is {self.packing!r}: use {', '.join(SCHEMES)}")
        for name, schemes in _ONLY_FOR.items():
            if self.packing not in schemes and name != "seed" and getattr(self, name) != _DEFAULTS[name]:
                raise ConfigError(f"{name} means nothing to packing {self.packing}: it is for {', '.join(schemes)}")
        self._check_lengths()
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name} is {getattr(self, name)!r}: use {' or '.join(choices)}")
        if not self.language:
            raise ConfigError("language is empty: give an ISO 639-1 code such as 'en'")
        if not 1 <= self.pair_copies <= 1000:
            raise ConfigError(f"pair_copies is {self.pair_copies}: it lies between 1 and 1000")
        if not 0.0 <= self.short_sequence_prob <= 1.0:
            raise ConfigError(f"short_sequence_prob is {self.short_sequence_prob}: a probability lies between 0 and 1")
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed is {self.seed}: it lies between 0 and 2**64 - 1")

    def _check_lengths(self) -> None:
        if not 8 <= self.max_length <= MAX_ROW_LENGTH:
            raise ConfigError(f"max_length is {self.max_length}: it lies between 8 and {MAX_ROW_LENGTH}")
        for name in ("min_document_tokens", "min_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: at least 1 is needed")
        if self.max_document_tokens is not None and self.max_document_tokens < self.min_document_tokens:
            raise ConfigError(
                f"max_document_tokens {self.max_document_tokens} is less than min_document_tokens {self.min_document_tokens}"
            )
        if self.stride < 0:
            raise ConfigError(f"stride is {self.stride}: it is a number of tokens, 0 or more")
        if self.bins:
            if list(self.bins) != sorted(set(self.bins)) or self.bins[0] < 8:
                raise ConfigError(
                    f"bins are {self.bins}: give row lengths of 8 or more, each longer than the one before"
                )
            if self.bins[-1] != self.max_length:
                raise ConfigError(
                    f"the last bin is {self.bins[-1]} and max_length {self.max_length}: rows of every length need a bin, "
                    "make them equal"
                )

    @property
    def by_sentences(self) -> bool:
        return self.packing in _BY_SENTENCES

    @property
    def parts(self) -> int:
        """Packed shards that one text shard becomes."""
        return (len(self.bins) or 1) * self.pair_copies

    def to_json(self) -> dict[str, Any]:
        """What the rows depend on: an option that the scheme has no use for is left out."""
        unused = {name for name, schemes in _ONLY_FOR.items() if self.packing not in schemes}
        if self.sentences == "lines":
            unused.add("language")
        return {
            f.name: list(value) if isinstance(value := getattr(self, f.name), tuple) else value
            for f in fields(self)
            if f.name not in unused
        }


_DEFAULTS = {f.name: f.default for f in fields(PackOptions)}
_CHOICES = {"remainder": ("pad", "drop"), "sentences": ("sentencex", "lines"), "objective": ("nsp", "sop")}
