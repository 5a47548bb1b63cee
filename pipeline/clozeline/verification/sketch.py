"""Repeated masks: rows that have been masked by the same random numbers.

A pattern is which of a window's positions are selected. Rows of equal shape whose masks are independent share a pattern with
chance at most 1 / C(n, k) when k of n units are selected in it, so patterns that say enough never repeat in a right data set.

A bottom-k sketch (Broder 1997, "On the resemblance and containment of documents") keeps the patterns with the smallest hashes:
equal patterns are kept together or not at all, so that repetition is found in constant memory, whatever lies between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEPT = 1 << 16  # patterns
WINDOW = 128  # positions
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


@lru_cache(maxsize=4)
def _information(most: int) -> NDArray[np.float64]:
    """log2 C(n, k) for n and k from 0 to `most`."""
    logs = np.concatenate(([0.0], np.cumsum(np.log2(np.arange(1, most + 1)))))
    n, k = np.arange(most + 1)[:, None], np.arange(most + 1)
    return np.asarray(np.where(k <= n, logs[n] - logs[k] - logs[np.maximum(n - k, 0)], -1.0))


@dataclass(slots=True)
class Sketch:
    """Patterns with the smallest hashes.

    Attributes:
        needed: bits that a pattern must say to be looked at.
        hashes: uint64 (N,), sorted. places: int64 (N, 4): copy, shard, row, window.
        looked_at: patterns seen in all.
    """

    needed: float
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    places: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 4), np.int64))
    looked_at: int = 0
    _waiting: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = field(default_factory=list)
    _waiting_count: int = 0

    def see(self, selected: NDArray[np.bool_], units: NDArray[np.bool_], copy: int, shard: int, first_row: int) -> None:
        """Takes the patterns of consecutive rows.

        Args:
            selected, units: bool (R, T), True at the first position of each selected unit, and of each unit.
        """
        length = selected.shape[1]
        # Windows for many patterns a row where they say enough; whole rows for units that are long, or rows that are short.
        step = WINDOW if length >= 2 * WINDOW and int(units.sum()) >= 0.6 * units.size else length
        for window, start in enumerate(range(0, length - step + 1, step)):
            part, base = selected[:, start : start + step], units[:, start : start + step]
            counts, chosen = base.sum(axis=1, dtype=np.int32), part.sum(axis=1, dtype=np.int32)
            told = np.flatnonzero(_information(step)[counts, chosen] >= self.needed)
            self.looked_at += len(told)
            if not len(told):
                continue
            hashes = _hash(part[told], window)
            if len(self.hashes) == KEPT:
                low = hashes <= self.hashes[-1]
                told, hashes = told[low], hashes[low]
            places = np.empty((len(told), 4), np.int64)
            places[:, 0], places[:, 1], places[:, 2], places[:, 3] = copy, shard, first_row + told, window
            self._waiting.append((hashes, places))
            self._waiting_count += len(hashes)
            if self._waiting_count >= KEPT:
                self.settle()

    def update(self, other: Sketch) -> None:
        self.looked_at += other.looked_at
        other.settle()
        self._waiting.append((other.hashes, other.places))
        self.settle()

    def settle(self) -> None:
        """Sorts in what has been seen since, and keeps the smallest."""
        hashes = np.concatenate([self.hashes, *(hashes for hashes, _ in self._waiting)])
        places = np.concatenate([self.places, *(places for _, places in self._waiting)])
        self._waiting, self._waiting_count = [], 0
        order = np.lexsort((places[:, 2], places[:, 1], places[:, 0], hashes))[:KEPT]
        self.hashes, self.places = hashes[order], places[order]

    def repeated(self) -> tuple[int, list[tuple[list[int], list[int]]]]:
        """How many patterns have been there before, and the places of a few such pairs."""
        self.settle()
        same = np.flatnonzero(self.hashes[1:] == self.hashes[:-1])
        pairs = [(self.places[i].tolist(), self.places[i + 1].tolist()) for i in same[:5]]
        return len(same), pairs


def _hash(patterns: NDArray[np.bool_], window: int) -> NDArray[np.uint64]:
    """uint64 (R,)."""
    packed = np.packbits(patterns, axis=1)
    padded = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    value = np.full(len(packed), window + 1, np.uint64)
    for word in padded.view(np.uint64).T:
        value = (value ^ word) * _MULTIPLIER
        value ^= value >> np.uint64(29)
        value *= _MIX
        value ^= value >> np.uint64(32)
    return value
