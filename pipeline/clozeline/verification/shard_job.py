"""The work of `verify` on one packed shard, or on all maskings of one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import DataError
from clozeline.seeds import SPANS, row_words
from clozeline.store.masks import TokenCounts, mask_rule, mask_vocabulary
from clozeline.store.shards import TokenShard
from clozeline.store.sparse import SparseShard, open_shard
from clozeline.verification.files import check_digest, check_metadata, check_rows, check_text
from clozeline.verification.findings import Findings
from clozeline.verification.marks import Marks
from clozeline.verification.replay import check_counts, check_labels, check_replay, unmask
from clozeline.verification.sketch import Sketch
from clozeline.verification.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from clozeline.mask_function import MaskVocabulary
    from clozeline.store.location import Location
    from clozeline.store.manifest import Metadata, ShardEntry
    from clozeline.store.sparse import Shard

    Columns = dict[str, NDArray[Any]]

COLUMNS = ("input_ids", "attention_mask", "num_tokens")
_BLOCK = 256  # rows looked at together: what is worked on stays in the cache
_SHARD_PAIR_BLOCKS = 16  # of two shards that are compared with each other; a repeated stream shows in the first


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyJob:
    """Reads one packed shard, or all maskings of one, and checks everything that can be known from it.

    Attributes:
        entries: the shard, or its masked copies in order.
        against: the packed shard that they were masked from, where that is at hand.
        fellow: another shard of the same copy as the first, whose masks must be independent of these.
        raw, fellow_raw: the packed rows beside the entries and beside the fellow, where labels are sparse.
        digests: recompute sha256.
        counts: of tokens, where replacements were drawn by them.
        needed: bits that a mask pattern must say to be kept; see `Sketch`.
    """

    location: Location
    entries: tuple[ShardEntry, ...]
    metadata: Metadata
    against: tuple[Location, ShardEntry] | None = None
    fellow: ShardEntry | None = None
    raw: ShardEntry | None = None
    fellow_raw: ShardEntry | None = None
    digests: bool = True
    counts: TokenCounts | None = None
    needed: float = 0.0

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in (*self.entries, *([self.raw] if self.raw else [])))

    def __call__(self) -> tuple[Findings, Tally | None]:
        findings = Findings()
        if self.raw is not None and self.digests:
            check_digest(self.location, self.raw.file, self.raw.sha256, findings)
        for entry in self.entries:
            if self.digests:
                check_digest(self.location, entry.file, entry.sha256, findings)
            if self.metadata.stage == "sharding":
                check_text(self.location, entry, findings)
        if self.metadata.stage == "sharding":
            return findings, None
        opened = [self._open(entry, self.raw, findings) for entry in self.entries]
        shards = [shard for shard in opened if shard is not None]
        for shard in shards:
            check_metadata(shard, self.metadata, findings)
            self._check_rows(shard, findings)
        if self.metadata.stage != "masking" or not shards:
            return findings, None
        return findings, self._check_masks(shards, findings)

    def _open(self, entry: ShardEntry, raw: ShardEntry | None, findings: Findings) -> Shard | None:
        try:
            shard = open_shard(self.location, entry, raw, self.metadata)
            if isinstance(shard, SparseShard):
                shard.check()
        except DataError as error:
            findings.add("layout", str(error))
            return None
        wanted = {*COLUMNS, *(("labels",) if self.metadata.stage == "masking" else ())}
        missing = sorted(wanted - set(shard.columns()))
        if missing and entry.rows:
            findings.add("layout", f"{shard.path}: has no column {', '.join(missing)}")
        return None if missing else shard

    def _check_rows(self, shard: Shard, findings: Findings) -> None:
        row = tokens = 0
        for columns in shard.batches(*COLUMNS):
            check_rows(shard.path, columns, row, self.metadata, findings)
            row += len(columns["input_ids"])
            tokens += int(columns["num_tokens"].sum(dtype=np.int64))
        if tokens != shard.entry.tokens:
            findings.add("layout", f"{shard.path}: {tokens:,} tokens, the manifest says {shard.entry.tokens:,}")

    def _check_masks(self, shards: list[Shard], findings: Findings) -> Tally:
        assert self.metadata.row_length is not None
        vocabulary = self.vocabulary
        tally = Tally(Sketch(self.needed), self.metadata.row_length, len(vocabulary.maskable))
        packed = TokenShard(*self.against) if self.against else None
        fellow = self._open(self.fellow, self.fellow_raw, Findings()) if self.fellow else None  # its own job tells
        if fellow is not None and fellow.types["input_ids"] != shards[0].types["input_ids"]:
            fellow = None  # rows of another length
        streams = [_blocks(shard) for shard in shards]
        others = _blocks(fellow) if fellow else iter(())
        row = 0
        for number, blocks in enumerate(zip(*streams, strict=False)):
            marks = [
                self._check_block(shard, columns, row, packed, findings, tally)
                for shard, columns in zip(shards, blocks, strict=True)
            ]
            for one, next_one in itertools.pairwise(marks):
                tally.copies.see(one.at[one.at < next_one.units.size], next_one)
            other = next(others, None) if number < _SHARD_PAIR_BLOCKS else None
            if other is not None and fellow is not None:
                theirs = self._marks(fellow, other, row, self._within(unmask(other["input_ids"], other["labels"])))
                tally.shards.see(theirs.at[theirs.at < marks[0].units.size], marks[0])
            row += len(blocks[0]["input_ids"])
        return tally

    @property
    def vocabulary(self) -> MaskVocabulary:
        """What the mask function knew of the tokenizer."""
        assert self.metadata.tokenizer is not None
        return mask_vocabulary(self.metadata.tokenizer, mask_rule(self.metadata), self.counts)

    def _within(self, ids: NDArray[Any]) -> NDArray[Any]:
        """Ids that the vocabulary has; others, of which `check_rows` has told, are cut down to its largest."""
        largest = len(self.vocabulary.maskable) - 1
        return np.minimum(ids, largest) if int(ids.max(initial=0)) > largest else ids

    def _marks(self, shard: Shard, columns: Columns, row: int, original: NDArray[Any]) -> Marks:
        rule, seed, copy = mask_rule(self.metadata), self.metadata.seed, shard.entry.copy
        assert seed is not None
        spans = None
        if rule.unit == "span":
            count, length = original.shape
            places = np.full(count, shard.entry.shard), np.arange(row, row + count)
            spans = row_words(seed, copy, *places, length, domain=SPANS)
        return Marks(
            original,
            columns["labels"],
            rule.for_copy(copy),
            self.vocabulary,
            columns.get("word_starts"),
            spans,
            own_share=False,
        )

    def _check_block(
        self,
        shard: Shard,
        columns: Columns,
        row: int,
        packed: TokenShard | None,
        findings: Findings,
        tally: Tally,
    ) -> Marks:
        rule, vocabulary, seed = mask_rule(self.metadata), self.vocabulary, self.metadata.seed
        assert seed is not None
        entry, where = shard.entry, shard.path
        ids, labels = columns["input_ids"], columns["labels"]
        check_labels(where, row, columns, vocabulary, findings)
        original = self._within(unmask(ids, labels))
        check_replay(
            where,
            columns,
            original,
            rule,
            vocabulary,
            seed=seed,
            copy=entry.copy,
            shard=entry.shard,
            first_row=row,
            findings=findings,
        )
        if packed is not None:
            _compare(where, row, original, packed, findings)
        marks = self._marks(shard, columns, row, original)
        one = rule.for_copy(entry.copy)
        check_counts(where, row, labels, marks, one, 0, findings)
        tally.see(self._within(ids), labels, original, marks, one, vocabulary)
        if entry.copy == 0:
            tally.see_shape(original, columns["attention_mask"], vocabulary)
        tally.sketch.see(marks.selected, marks.units, entry.copy, entry.shard, row)
        return marks


def _blocks(shard: Shard) -> Iterator[Columns]:
    for columns in shard.batches():
        for first in range(0, len(columns["input_ids"]), _BLOCK):
            yield {name: values[first : first + _BLOCK] for name, values in columns.items()}


def _compare(where: str, row: int, original: NDArray[Any], packed: TokenShard, findings: Findings) -> None:
    rows = np.arange(row, row + len(original))
    if rows[-1] >= packed.entry.rows:
        findings.add("unmasking", f"{where}: has more rows than the {packed.entry.rows:,} of {packed.path}")
        return
    differs = original != packed.take("input_ids", rows)
    if differs.any():
        bad, position = np.argwhere(differs)[0].tolist()
        findings.add(
            "unmasking",
            f"{where}, row {row + bad}, position {position}: unmasked it is not what stands in {packed.path}",
            int(differs.any(axis=1).sum()),
        )
