"""Row order, version 1: which row stands at which position of an epoch, computed on the fly.

A global shuffle is a keyed permutation of 0..N-1: a Feistel network over the mixed radix a * b >= N with cycle walking (Black
and Rogaway 2002, "Ciphers with Arbitrary Finite Domains", section 5), with a non-cryptographic round function. No array of N
numbers exists anywhere; position to row costs the same for a thousand rows and for a hundred million. `docs/stream.md` has the
exact definition with test vectors; a change of one position is a new version.

Shapes: P positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from clozeline.errors import ConfigError
from clozeline.seeds import ROW_ORDER, row_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

VERSION = 1
ROUNDS = 6
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)

# What the words of a key are for.
_ROWS, _BLOCKS, _ROTATION, _WINDOW, LENGTH_BATCHES, LENGTH_ROWS = range(6)

Shuffle = Literal["global", "blocks", "lengths"] | None


def order_keys(seed: int, epoch: int, purpose: int, window: int = 0) -> list[int]:
    """The keys of a permutation: ROUNDS numbers of 64 bits."""
    words = row_words(seed, epoch, np.array([window]), np.array([purpose]), ROUNDS, domain=ROW_ORDER)
    return [int(w) for w in words[0]]


def _add_round(target: Words, source: Words, key: int, modulus: int) -> None:
    """target = (target + F(source)) mod modulus, in place; F is uniform over 0..modulus-1, modulus < 2**32."""
    h = source ^ np.uint64(key)
    h *= _MULTIPLIER_1
    h ^= h >> _HALF
    h *= _MULTIPLIER_2
    h >>= _HALF
    h *= np.uint64(modulus)
    h >>= _HALF
    target += h
    # Below zero wraps to a huge number: the smaller of the two is the one in range.
    np.minimum(target, target - np.uint64(modulus), out=target)


def _network(x: Words, a: int, b: int, keys: list[int]) -> Words:
    left, right = np.divmod(x, np.uint64(b))
    for i, key in enumerate(keys):
        if i % 2 == 0:
            _add_round(left, right, key, a)
        else:
            _add_round(right, left, key, b)
    left *= np.uint64(b)
    left += right
    return left


def permute(positions: NDArray[np.int64], count: int, keys: list[int]) -> NDArray[np.int64]:
    """The images of positions under the permutation of 0..count-1 that the keys name.

    Args:
        positions: int64 (P,), each in 0..count-1.
        count: N, below 2**62.
        keys: ROUNDS numbers of 64 bits.

    Returns:
        int64 (P,). About 25 million positions a second in blocks of 16,384 (one core of an Intel Xeon, 2026-12-01).
    """
    a = isqrt(count - 1) + 1
    b = -(-count // a)
    n = np.uint64(count)
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        y = _network(positions.astype(np.uint64), a, b, keys)
        # a * b exceeds N by less than a, so about one position in sqrt(N) walks on.
        outside = np.flatnonzero(y >= n)
        while len(outside):
            y[outside] = _network(y[outside], a, b, keys)
            outside = outside[y[outside] >= n]
    return y.astype(np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOrder:
    """The order of N rows under a seed; epoch by epoch another.

    Attributes:
        count: N.
        seed: 0 to 2**64 - 1.
        shuffle: "global": every order of all rows, neighbours are spread over the whole epoch. "blocks": blocks of consecutive
            rows in random order, rows shuffled within windows of blocks, for disks and object stores where random reads cost.
            None: as stored.
        block_rows: rows per block.
        window_blocks: blocks per window.
    """

    count: int
    seed: int
    shuffle: Shuffle = "global"
    block_rows: int = 4096
    window_blocks: int = 16

    def __post_init__(self) -> None:
        if self.shuffle not in ("global", "blocks", None):
            raise ConfigError(f"shuffle is {self.shuffle!r}: use 'global', 'blocks', 'lengths' or None")
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed is {self.seed}: it lies between 0 and 2**64 - 1")
        if self.block_rows < 1 or self.window_blocks < 1:
            raise ConfigError(
                f"block_rows is {self.block_rows} and window_blocks is {self.window_blocks}: each is 1 or more"
            )

    def rows(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows at these positions of an epoch: int64 (P,), each in 0..N-1."""
        if self.shuffle is None:
            return positions
        if self.shuffle == "global":
            return permute(positions, self.count, order_keys(self.seed, epoch, _ROWS))
        return self._in_blocks(epoch, positions)

    def _in_blocks(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        size, window_rows = self.block_rows, self.block_rows * self.window_blocks
        whole = (
            self.count // size
        )  # the short block keeps its place at the end; the rotation gives it other rows each epoch
        windows = positions // window_rows
        spread = np.empty_like(positions)
        for window in np.unique(windows).tolist():
            here = np.flatnonzero(windows == window)
            first = window * window_rows
            rows = min(window_rows, self.count - first)
            spread[here] = first + permute(positions[here] - first, rows, order_keys(self.seed, epoch, _WINDOW, window))
        block, place = np.divmod(spread, size)
        inside = np.flatnonzero(block < whole)
        if len(inside):
            block[inside] = permute(block[inside], whole, order_keys(self.seed, epoch, _BLOCKS))
        rotation = order_keys(self.seed, epoch, _ROTATION)[0] * self.count >> 64
        rows_at: NDArray[np.int64] = (block * size + place + rotation) % self.count
        return rows_at
