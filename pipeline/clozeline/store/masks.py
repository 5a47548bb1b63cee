"""The mask function as a data set's metadata describes it: its vocabulary and its rule."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from clozeline.errors import ConfigError, DataError
from clozeline.mask_function import VERSION, MaskRule, MaskVocabulary, check_cap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.store.dataset import Data
    from clozeline.store.manifest import Metadata, TokenizerFacts


COUNTS = "token_counts.bin"  # int64, little-endian, by id


@dataclass(frozen=True, eq=False)
class TokenCounts:
    """How often each id stands in some rows: int64 (vocabulary size,). Two are equal when their numbers are."""

    array: NDArray[np.int64]

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        return self.array.astype("<i8").tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenCounts) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)


def stored_counts(data: Data) -> TokenCounts:
    """The counts that a masked data set carries.

    Raises:
        DataError: they are missing or changed.
    """
    try:
        counts = TokenCounts(np.frombuffer(data.location.read(COUNTS), "<i8").astype(np.int64))
    except (OSError, ValueError) as error:
        raise DataError(f"{data.location}/{COUNTS}: cannot be read ({error}); restore it or mask again") from error
    if counts.sha256 != data.metadata.config["token_counts"]:
        raise DataError(f"{data.location}/{COUNTS}: was changed after it was written; restore it or mask again")
    return counts


@lru_cache(maxsize=8)
def mask_vocabulary(facts: TokenizerFacts, rule: MaskRule, counts: TokenCounts | None = None) -> MaskVocabulary:
    """What the mask function must know of a data set's tokenizer, under a rule that may protect further ids.

    Args:
        counts: of the ids in the packed rows, where the rule draws replacements by frequency.

    Raises:
        ConfigError: the rule protects ids that do not exist, or leaves none to select or draw; or counts are missing.
    """
    ordinary = _ids(facts.ordinary_ranges)
    for name, ranges in (("never_select", rule.never_select), ("never_draw", rule.never_draw)):
        named = _ids(ranges)
        unknown = named[(named >= facts.vocabulary_size)]
        if len(unknown):
            raise ConfigError(f"{name} names the id {unknown[0]}; the vocabulary ends at {facts.vocabulary_size - 1}")
        if np.isin(ordinary, named).all():
            raise ConfigError(f"{name} leaves no ordinary id")
    continuing = None
    if facts.continuing is not None:
        bits = np.unpackbits(np.frombuffer(base64.b64decode(facts.continuing), np.uint8), bitorder="little")
        continuing = np.zeros(facts.vocabulary_size, bool)
        known = min(len(bits), len(continuing))
        continuing[:known] = bits[:known]
    drawable = np.setdiff1d(ordinary, _ids(rule.never_draw))
    frequencies = None
    if rule.replacement == "frequency":
        if counts is None:
            raise ConfigError(
                "replacement is 'frequency': counts of the packed rows are needed (clozeline.token_counts)"
            )
        frequencies = counts.array[drawable]
        if not frequencies.any():
            raise ConfigError("replacement is 'frequency', and no id that may be drawn occurs in the packed rows")
    return MaskVocabulary(
        mask_id=facts.mask_id,
        special_ids=tuple(sorted({*facts.special_ids, *_ids(rule.never_select).tolist()})),
        ordinary_ids=drawable,
        continuing=continuing,
        counts=frequencies,
    )


def _ids(ranges: tuple[tuple[int, int], ...]) -> NDArray[np.int64]:
    """Inclusive ranges, spelled out."""
    return np.concatenate([np.arange(a, b + 1, dtype=np.int64) for a, b in ranges] or [np.empty(0, np.int64)])


def mask_rule(metadata: Metadata) -> MaskRule:
    """The rule by which a masked data set was made.

    Raises:
        DataError: it was made by another version of the mask function.
    """
    if metadata.mask_function != VERSION:
        raise DataError(
            f"masked by version {metadata.mask_function} of the mask function, this clozeline knows version {VERSION}: "
            "use the clozeline that wrote it"
        )
    return MaskRule.from_json(
        {k: v for k, v in metadata.config.items() if k not in ("copies", "token_counts", "labels")}
    )


def check_rule(rule: MaskRule, packed: Metadata, *, allow_lower_rate: bool) -> None:
    """Refuses a rule that packed rows cannot be masked by, before any row is read.

    Raises:
        ConfigError: it protects every id, its cap lowers the rate unasked, or it needs words that nothing tells.
    """
    facts, length = packed.tokenizer, packed.row_length
    assert facts is not None
    assert length is not None
    vocabulary = mask_vocabulary(facts, replace(rule, replacement="uniform"))
    check_cap(rule, length - len(facts.prefix_ids) - len(facts.suffix_ids), allow_lower_rate=allow_lower_rate)
    if rule.unit != "token" and vocabulary.continuing is None and not packed.config_of("packing").get("word_starts"):
        raise ConfigError(
            f"unit is {rule.unit!r}, but this tokenizer does not mark where words start: pack with --word-starts"
        )
