"""manifest.json: what a data set is, where it came from, and the digest of every shard.

Nothing that differs between two runs of the same work (time, host, absolute path, worker count, engine, library version)
may enter here: that is what `run.json` is for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from clozeline.errors import DataError
from clozeline.store.json_values import checked, parse_json
from clozeline.store.ledger import Ledger

if TYPE_CHECKING:
    from clozeline.store.location import Location

FORMAT_VERSION = 1
NAME = "manifest.json"
STAGES = ("sharding", "packing", "masking")
_FILE_PART = re.compile(r"[^./\\\0][^/\\\0]*")  # neither empty, nor hidden, nor a way up
_SHARD_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.arrow")


def canonical_json(value: Any) -> str:
    """The one spelling of a JSON value that digests are taken of: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """sha256 (hex) of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def to_ranges(ids: list[int]) -> list[list[int]]:
    """Sorted ids as inclusive ranges.

    >>> to_ranges([0, 1, 2, 7, 9, 10])
    [[0, 2], [7, 7], [9, 10]]
    """
    ranges: list[list[int]] = []
    for i in ids:
        if ranges and i == ranges[-1][1] + 1:
            ranges[-1][1] = i
        else:
            ranges.append([i, i])
    return ranges


def to_bits(ids: set[int]) -> str:
    """A set of ids as base64 of one bit for each id up to the largest, lowest bit first.

    >>> to_bits({0, 9})
    'AQI='
    """
    bits = bytearray(max(ids, default=-1) // 8 + 1)
    for i in ids:
        bits[i // 8] |= 1 << i % 8
    return base64.b64encode(bits).decode()


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerFacts:
    """What later stages must know of the tokenizer, so that none of them needs the tokenizer itself.

    Attributes:
        sha256: digest of its tokenizer.json.
        vocabulary_sha256: digest of its token-to-id map, equal for every way of saving the same vocabulary.
        vocabulary_size: largest id + 1, added tokens and holes included.
        mask_id, pad_id, unk_id, separator_id: ids by role; unk_id is None where there is none.
        prefix_ids, suffix_ids: what the tokenizer's own template puts around a row.
        pair_ids: what it puts between the two segments of a pair.
        special_ids: named special tokens and added tokens flagged special, sorted.
        ordinary_ranges: every other id that exists, as inclusive ranges.
        continuing: which ids continue a word (WordPiece's "##ing"): base64 of a bit for each id, lowest bit first; None where
            the model marks no continuation, and words can only be known from the tokenizer at work (`pack --word-starts`).
            Ranges would take fifteen times the space: such ids lie scattered.
    """

    sha256: str
    vocabulary_sha256: str
    vocabulary_size: int
    mask_id: int
    pad_id: int
    unk_id: int | None
    separator_id: int
    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    pair_ids: tuple[int, ...]
    special_ids: tuple[int, ...]
    ordinary_ranges: tuple[tuple[int, int], ...]
    continuing: str | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TokenizerFacts:
        tuples = {k: tuple(data[k]) for k in ("prefix_ids", "suffix_ids", "pair_ids", "special_ids")}
        ordinary = tuple((a, b) for a, b in data["ordinary_ranges"])
        facts = checked(cls(**{**data, **tuples, "ordinary_ranges": ordinary}))
        ids = [facts.mask_id, facts.pad_id, facts.separator_id, *facts.special_ids, *(i for r in ordinary for i in r)]
        if max(ids) >= facts.vocabulary_size or facts.vocabulary_size > 2**31:
            raise ValueError(f"vocabulary_size is {facts.vocabulary_size}, the largest id {max(ids)}")
        return facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """What a data set is, apart from its content. Travels in every shard (Arrow schema metadata, key `clozeline`).

    Attributes:
        stage: "sharding", "packing" or "masking".
        config: the options that the bytes depend on.
        upstream: fingerprint of the data set that this one was made from; for text, of the list of input files.
        lineage: stage and configuration of everything upstream, oldest first.
        row_length: L, positions per row, of the longest rows where they differ from shard to shard; None for text.
        tokenizer: None for text.
        seed, mask_function: of the masks; None before masking.
    """

    stage: str
    config: dict[str, Any]
    upstream: str
    lineage: tuple[dict[str, Any], ...] = ()
    row_length: int | None = None
    tokenizer: TokenizerFacts | None = None
    seed: int | None = None
    mask_function: int | None = None
    format_version: int = FORMAT_VERSION

    @property
    def fingerprint(self) -> str:
        """Digest of everything here: the same for two data sets exactly when they are made in the same way from the same."""
        return digest(self.to_json())

    def config_of(self, stage: str) -> dict[str, Any]:
        """The options of a stage, this one or one upstream; empty where there was none."""
        if self.stage == stage:
            return self.config
        config: dict[str, Any] = next((item["config"] for item in self.lineage if item["stage"] == stage), {})
        return config

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Metadata:
        data = {**data, "lineage": tuple(data["lineage"])}
        if data["tokenizer"] is not None:
            data["tokenizer"] = TokenizerFacts.from_json(data["tokenizer"])
        metadata = checked(cls(**data))
        if metadata.stage not in STAGES:
            raise ValueError(f"stage is {metadata.stage[:50]!r}")
        return metadata

    def next(self, **changes: Any) -> Metadata:
        """The metadata of a data set made from this one."""
        lineage = (*self.lineage, {"stage": self.stage, "config": self.config})
        return replace(self, upstream=self.fingerprint, lineage=lineage, **changes)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardEntry:
    """One shard in the manifest.

    Attributes:
        file: name within the data set.
        copy: which static masking of the data; 0 where there is only one.
        shard: index of the packed shard; with `copy` and the row number it identifies a row's masks.
        rows: documents for text, token rows otherwise.
        tokens: positions that are not padding; 0 for text.
        bytes, sha256: of the file.
        row_length: L of its rows; None for text.
    """

    file: str
    copy: int
    shard: int
    rows: int
    tokens: int
    bytes: int
    sha256: str
    row_length: int | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ShardEntry:
        entry = checked(cls(**data))
        if not _SHARD_FILE.fullmatch(entry.file):
            raise ValueError(f"{entry.file[:100]!r} is no name of a shard")
        return entry


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """A finished data set.

    Attributes:
        ledger: of the stage that made it.
        history: ledgers of the stages before, in the order of `metadata.lineage`.
        shards: in order; copy-major where there are copies.
        files: further files (tokenizer/...) and their sha256.
        raw: the packed rows, where masked shards have sparse labels; empty otherwise, and then not in the file.
    """

    metadata: Metadata
    ledger: Ledger
    history: tuple[Ledger, ...] = ()
    shards: tuple[ShardEntry, ...]
    files: dict[str, str] = field(default_factory=dict)
    raw: tuple[ShardEntry, ...] = ()

    def raw_of(self, entry: ShardEntry) -> ShardEntry | None:
        """The packed rows that a masked shard masks, where the data set holds them."""
        return next((raw for raw in self.raw if raw.shard == entry.shard), None)

    def files_of(self, entry: ShardEntry) -> tuple[ShardEntry, ...]:
        """What must be read for a shard's rows: itself, and the packed rows where it holds sparse labels."""
        raw = self.raw_of(entry)
        return (entry,) if raw is None else (entry, raw)

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.shards)

    @property
    def tokens(self) -> int:
        return sum(s.tokens for s in self.shards)

    @property
    def bytes(self) -> int:
        return sum(s.bytes for s in (*self.shards, *self.raw))

    @property
    def sha256(self) -> str:
        """Digest of manifest.json itself, and so, through the shard digests, of all the data."""
        return hashlib.sha256(self.to_file().encode()).hexdigest()

    def to_file(self) -> str:
        body = {
            **self.metadata.to_json(),
            "fingerprint": self.metadata.fingerprint,
            "ledger": self.ledger.to_json(),
            "history": [ledger.to_json() for ledger in self.history],
            "shards": [asdict(s) for s in self.shards],
            **({"raw": [asdict(s) for s in self.raw]} if self.raw else {}),
            "files": dict(sorted(self.files.items())),
        }
        return json.dumps(body, indent=1, allow_nan=False) + "\n"

    @classmethod
    def load(cls, location: Location) -> Manifest:
        """Reads and checks the manifest of a finished data set.

        Raises:
            DataError: there is none, or it is not one of ours, or of a newer format.
        """
        where = f"{location}/{NAME}"
        if not location.exists(NAME):
            unfinished = location.exists(".clozeline")
            hint = (
                "its preparation did not finish: run the same command again with --resume"
                if unfinished
                else "it is not a clozeline data set"
                if location.exists()
                else "there is no such folder"
            )
            raise DataError(f"{location}: no {NAME} here; {hint}")
        try:
            body = parse_json(location.read(NAME))
            version = body["format_version"]
            if version != FORMAT_VERSION:
                raise DataError(
                    f"{where}: format version {version}, this clozeline reads {FORMAT_VERSION}: upgrade clozeline"
                )
            stated = body.pop("fingerprint")
            shards = tuple(map(ShardEntry.from_json, body.pop("shards")))
            raw = tuple(map(ShardEntry.from_json, body.pop("raw", ())))
            ledger = Ledger.from_json(body.pop("ledger"))
            history = tuple(map(Ledger.from_json, body.pop("history")))
            files = body.pop("files")
            manifest = checked(
                cls(
                    metadata=Metadata.from_json(body),
                    ledger=ledger,
                    history=history,
                    shards=shards,
                    files=files,
                    raw=raw,
                )
            )
        except OSError as error:
            raise DataError(f"{where}: cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{where}: damaged or not written by clozeline ({type(error).__name__}: {error})"
            ) from error
        if stated != manifest.metadata.fingerprint:
            raise DataError(f"{where}: was changed after it was written (its fingerprint does not fit its fields)")
        for name in manifest.files:
            if not all(_FILE_PART.fullmatch(part) for part in name.split("/")):
                raise DataError(f"{where}: names a file outside the data set: {name!r}")
        return manifest
