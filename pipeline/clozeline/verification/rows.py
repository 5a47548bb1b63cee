"""Rows for people: what each position shows, and what the masks have done to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from clozeline.errors import DataError
from clozeline.mask_function import IGNORE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from clozeline.store.dataset import Data
    from clozeline.store.manifest import TokenizerFacts

    Action = Literal["plain", "special", "mask", "random", "keep"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One position of a row.

    Attributes:
        text: what stands there, decoded.
        original: what stood there before masking; the same where nothing was replaced.
        action: "mask", "random" or "keep" where it was selected.
        space: a blank belongs before it.
    """

    text: str
    original: str
    action: Action
    space: bool


class RowDecoder:
    """Decodes ids one by one, each as it would stand in running text.

    Args:
        tokenizer_json: content of tokenizer.json.
        facts: of the same tokenizer.
    """

    def __init__(self, tokenizer_json: str, facts: TokenizerFacts) -> None:
        from tokenizers import Tokenizer

        self._facts = facts
        self._special = frozenset(facts.special_ids)
        self._tokenizer: Any = Tokenizer.from_str(tokenizer_json)
        body = json.loads(tokenizer_json)
        self._prefix = body["model"].get("continuing_subword_prefix") if body["model"]["type"] == "WordPiece" else None
        kinds = _kinds(body.get("pre_tokenizer")) | _kinds(body.get("decoder"))
        self._bytes = _byte_of_character() if "ByteLevel" in kinds else None

    @classmethod
    def of(cls, data: Data) -> RowDecoder:
        """For a data set, by the tokenizer that it carries."""
        facts = data.metadata.tokenizer
        if facts is None:
            raise DataError(f"{data.location}: holds text, not token rows")
        return cls(data.location.read("tokenizer/tokenizer.json").decode(), facts)

    def _text(self, token_id: int) -> tuple[str, bool]:
        """The token's text, and whether a blank belongs before it."""
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return f"<{token_id}>", True
        if token_id in self._special:
            return token, True
        if self._bytes is not None:
            raw = bytes(self._bytes.get(c, 0xFF) for c in token)
            text = raw.decode("utf-8", "backslashreplace")  # a character may be cut into several tokens
            return (text[1:], True) if text.startswith(" ") and len(text) > 1 else (text, False)
        if self._prefix is not None:
            continues = token.startswith(self._prefix) and token != self._prefix
            return (token[len(self._prefix) :], False) if continues else (token, True)
        if "\u2581" in token:
            return token.replace("\u2581", " ").removeprefix(" "), token.startswith("\u2581")
        return token, False

    def row(self, ids: NDArray[Any], labels: NDArray[Any] | None, tokens: int) -> list[Piece]:
        """The pieces of one row.

        Args:
            ids, labels: (L,).
            tokens: positions that are not padding; the rest is left out.
        """
        pieces = []
        for position in range(tokens):
            token_id = int(ids[position])
            label = IGNORE if labels is None else int(labels[position])
            text, space = self._text(token_id)
            action: Action = "special" if token_id in self._special else "plain"
            original = text
            if label != IGNORE:
                original, space = self._text(label)
                action = "mask" if token_id == self._facts.mask_id else "keep" if token_id == label else "random"
            pieces.append(Piece(text, original, action, space))
        return pieces


def row_at(data: Data, row: int, copy: int) -> tuple[int, int]:
    """The manifest index of the shard that holds the row-th row of a copy, and the row's number within it.

    Raises:
        DataError: there is no such row or copy.
    """
    entries = [(i, e) for i, e in enumerate(data.manifest.shards) if e.copy == copy]
    if not entries:
        copies = 1 + max(e.copy for e in data.manifest.shards)
        raise DataError(f"{data.location}: has no copy {copy}; there are {copies}, numbered from 0")
    left = row
    for index, entry in entries:
        if 0 <= left < entry.rows:
            return index, left
        left -= entry.rows
    total = sum(e.rows for _, e in entries)
    raise DataError(f"{data.location}: has no row {row}; a copy has {total:,}, numbered from 0")


def decode_row(data: Data, decoder: RowDecoder, row: int, copy: int = 0) -> list[Piece]:
    """A row of a data set, by its number within a copy."""
    import numpy as np

    index, inner = row_at(data, row, copy)
    shard = data.shard(index)
    at: NDArray[np.int64] = np.array([inner])
    labels = shard.take("labels", at)[0] if "labels" in shard.columns() else None
    return decoder.row(shard.take("input_ids", at)[0], labels, int(shard.take("num_tokens", at)[0]))


def _kinds(part: Any) -> set[str]:
    """Types of a tokenizer's component and of those within it."""
    if isinstance(part, dict):
        return {str(part.get("type"))} | {kind for value in part.values() for kind in _kinds(value)}
    return {kind for item in part for kind in _kinds(item)} if isinstance(part, list) else set()


def _byte_of_character() -> dict[str, int]:
    """The alphabet of byte-level BPE (Radford et al. 2019): printable bytes are themselves, the others follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(printable)]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}
