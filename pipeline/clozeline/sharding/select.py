"""Which documents are kept: hold-out, and exact de-duplication across the corpus in bounded memory."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.seeds import DOCUMENTS, block_words
from clozeline.sharding.clean import needed
from clozeline.store.documents import Documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from clozeline.sharding.options import SelectOptions
    from clozeline.store.documents import DocumentSource
    from clozeline.store.ledger import Ledger
    from clozeline.store.location import Location
    from clozeline.store.output import ShardResult

ORDER, HOLD_OUT = 0, 1  # third counter word: what the random words of a document are for
_BUCKET_DOCUMENTS = 2**22  # documents looked at together for duplicates: about 200 MB
_BANDS, _BAND_ROWS, _RUN_WORDS = 16, 8, 5
_DIGEST = np.dtype([("high", "<u8"), ("low", "<u8"), ("ordinal", "<i8")])


def document_words(seed: int, keys: Iterable[bytes], purpose: int) -> NDArray[np.uint64]:
    """One random word a document: uint64 (N,).

    The word is the first of the Philox block of key [seed, 0] and counter [low, high, purpose, 2], where low and high are the two
    little-endian halves of the 16-byte BLAKE2b digest of `keys[i]` (its id for the order, its text for the hold-out).
    """
    digests = b"".join(hashlib.blake2b(key, digest_size=16).digest() for key in keys)
    halves = np.frombuffer(digests, "<u8").reshape(-1, 2)
    counters = np.empty((len(halves), 4), np.uint64)
    counters[:, :2] = halves
    counters[:, 2] = purpose
    counters[:, 3] = DOCUMENTS
    words: NDArray[np.uint64] = block_words(seed, 0, counters)[:, 0]
    return words


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    """The documents of a source that are kept.

    Attributes:
        duplicates: where `find_duplicates` has left its findings; None for no de-duplication.
    """

    source: DocumentSource
    options: SelectOptions
    duplicates: Location | None

    @property
    def shards(self) -> tuple[int, ...]:
        return self.source.shards

    def read(self) -> Iterator[tuple[int, Ledger, Iterator[Documents]]]:
        for shard, ledger, documents in self.source.read():
            if self.options.held_out:
                documents = self._one_side(documents, ledger)
            if self.duplicates is not None:
                documents = self._first_ones(documents, ledger, shard)
            yield shard, ledger, documents

    def _one_side(self, stream: Iterable[Documents], ledger: Ledger) -> Iterator[Documents]:
        held_out = self.options.split == "held-out"
        for documents in stream:
            words = document_words(self.options.seed, documents.texts, HOLD_OUT)
            keep = ((words >> np.uint64(32)) < floor(self.options.held_out * 2.0**32)) == held_out
            yield _kept(documents, keep, ledger, "not_held_out" if held_out else "held_out")

    def _first_ones(self, stream: Iterable[Documents], ledger: Ledger, shard: int) -> Iterator[Documents]:
        assert self.duplicates is not None
        drop = np.frombuffer(self.duplicates.read(f"{shard:05d}.drop"), "<i8")
        ordinal = 0
        for documents in stream:
            numbers = np.arange(ordinal, ordinal + len(documents.ids))
            ordinal += len(documents.ids)
            reason = "near_duplicate" if self.options.near_duplicates else "duplicate"
            yield _kept(documents, ~np.isin(numbers, drop), ledger, reason)


def _kept(documents: Documents, keep: NDArray[np.bool_], ledger: Ledger, reason: str) -> Documents:
    if keep.all():
        return documents
    ledger.documents.dropped[reason] += int((~keep).sum())
    ledger.documents.out -= int((~keep).sum())
    wanted = np.flatnonzero(keep).tolist()
    return Documents([documents.ids[i] for i in wanted], [documents.texts[i] for i in wanted])


@dataclass(frozen=True, kw_only=True, slots=True)
class DigestJob:
    """Writes the digests of a source's documents, sorted, one file a shard."""

    source: Selected
    place: Location

    @property
    def name(self) -> str:
        return f"digests of shard {self.source.shards[0]}"

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        return ()

    @property
    def is_done(self) -> bool:
        return all(self.place.exists(f"{shard:05d}.digests") for shard in self.source.shards)

    def __call__(self) -> list[ShardResult]:
        for shard, _, stream in self.source.read():
            keys = near_keys if self.source.options.near_duplicates else _exact_key
            digests = [keys(text) for documents in stream for text in documents.texts]
            table = np.empty(sum(map(len, digests)), _DIGEST)
            halves = np.frombuffer(b"".join(key for each in digests for key in each), "<u8").reshape(-1, 2)
            table["high"], table["low"] = halves[:, 0], halves[:, 1]
            table["ordinal"] = np.repeat(np.arange(len(digests)), [len(each) for each in digests])
            self.place.write(f"{shard:05d}.digests", np.sort(table, order=("high", "low", "ordinal")).tobytes())
        return []


def _exact_key(text: bytes) -> list[bytes]:
    return [hashlib.blake2b(text, digest_size=16).digest()]


def near_keys(text: bytes) -> list[bytes]:
    """Sixteen keys of a document; one that shares any of them with an earlier document is taken for its near duplicate.

    MinHash (Broder 1997, "On the resemblance and containment of documents") over runs of five words, lower-cased, with 128
    permutations in 16 bands of 8: of two documents whose sets of runs have the Jaccard similarity s, the second is dropped with
    probability 1 - (1 - s**8)**16, which is 0.06 at s = 0.5, 0.61 at 0.7, 0.95 at 0.8. About 1 MB of text a second.
    """
    minhash: Any = needed("datasketch", "near_duplicates").MinHash(num_perm=_BANDS * _BAND_ROWS, seed=1)
    words = text.lower().split()
    runs = {b" ".join(words[i : i + _RUN_WORDS]) for i in range(max(1, len(words) - _RUN_WORDS + 1))}
    minhash.update_batch(sorted(runs))
    values: NDArray[np.uint64] = np.asarray(minhash.hashvalues, "<u8").reshape(_BANDS, _BAND_ROWS)
    return [
        hashlib.blake2b(row.tobytes(), digest_size=16, salt=band.to_bytes(2, "little")).digest()
        for band, row in enumerate(values)
    ]


def find_duplicates(place: Location, shards: int) -> None:
    """From the digests of all shards to the documents to drop, `NNNNN.drop` for each shard: all but the first with a digest."""
    tables: list[NDArray[Any]] = [np.frombuffer(place.map(f"{shard:05d}.digests"), _DIGEST) for shard in range(shards)]
    drop = [io.BytesIO() for _ in range(shards)]
    buckets = 1 + sum(map(len, tables)) // _BUCKET_DOCUMENTS
    edges = [
        np.searchsorted(t["high"], np.array([b * 2**64 // buckets for b in range(1, buckets)], np.uint64))
        for t in tables
    ]
    bounds = [[0, *e.tolist(), len(t)] for e, t in zip(edges, tables, strict=True)]
    for bucket in range(buckets):
        parts = [t[b[bucket] : b[bucket + 1]] for t, b in zip(tables, bounds, strict=True)]
        owner = np.repeat(np.arange(shards), [len(p) for p in parts])
        together = np.concatenate(parts)
        order = np.lexsort((together["ordinal"], owner, together["low"], together["high"]))
        together, owner = together[order], owner[order]
        again = np.zeros(len(together), bool)
        again[1:] = (together["high"][1:] == together["high"][:-1]) & (together["low"][1:] == together["low"][:-1])
        for shard in np.unique(owner[again]).tolist():
            drop[shard].write(together["ordinal"][again & (owner == shard)].tobytes())
    for shard, found in enumerate(drop):
        place.write(f"{shard:05d}.drop", found.getvalue())
