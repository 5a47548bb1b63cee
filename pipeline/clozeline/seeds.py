"""Counter-based random words: Philox 4x64-10 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3", section 4).

A word is a function of a key (the seed and one more number) and a counter of four 64-bit numbers that says what the word
belongs to. No generator outlives a call, so nothing depends on who draws first. The last counter number is the domain:
words for different purposes never coincide.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

# Domains.
MASK = 0
SPANS = 1
DOCUMENTS = 2
ROW_ORDER = 3
SENTENCE_PAIRS = 4

MAX_SEED = 2**64 - 1


def row_words(
    seed: int, copy: int, shards: NDArray[np.int64], rows: NDArray[np.int64], length: int, *, domain: int = MASK
) -> Words:
    """The `length` words of each row; word t belongs to position t.

    Args:
        seed, copy: the key, each in 0..2**64-1.
        shards, rows: int64 (B,), the identity of each row: shard index and row number within that shard.
        length: T, words per row.

    Returns:
        uint64 (B, T). Row r of shard h is
        `numpy.random.Philox(key=[seed, copy], counter=[r * ceil(T/4), h, 0, domain]).random_raw(4 * ceil(T/4))[:T]`.

    Runs of consecutive rows of one shard share one draw: 438,000 rows of 512 a second for one long run, 188,000 for
    scattered rows (one core of an Intel Xeon, 2026-12-01).
    """
    blocks = -(-length // 4)
    count = len(rows)
    breaks = np.flatnonzero((np.diff(rows) != 1) | (np.diff(shards) != 0)) + 1
    starts = [0, *breaks.tolist(), count] if count else [0]
    generator = np.random.Philox(key=np.array([seed, copy], np.uint64))
    # Lists: the generator takes what it is given apart number by number, which is four times slower with arrays.
    counter = [0, 0, 0, domain]
    state: Any = {**generator.state, "state": {"key": [seed, copy], "counter": counter}, "buffer": [0] * 4}
    state["buffer_pos"] = 4  # nothing left over from the words before
    first_blocks, first_shards = (rows[starts[:-1]] * blocks).tolist(), shards[starts[:-1]].tolist()
    words = np.empty((count if len(starts) > 2 else 0, blocks * 4), np.uint64)
    for (first, last), counter[0], counter[1] in zip(pairwise(starts), first_blocks, first_shards, strict=True):
        generator.state = state
        run: Words = generator.random_raw((last - first) * blocks * 4).reshape(last - first, -1)
        if last - first == count:
            return run[:, :length]
        words[first:last] = run
    return words[:, :length]


_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157))
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


def _multiply_high(a: Words, b: np.uint64) -> Words:
    """Upper 64 bits of the 128-bit products, from four 32-bit halves."""
    a_low, a_high, b_low, b_high = a & _LOW, a >> _SHIFT, b & _LOW, b >> _SHIFT
    carry = (a_low * b_low >> _SHIFT) + (a_low * b_high & _LOW) + (a_high * b_low & _LOW)
    high: Words = a_high * b_high + (a_low * b_high >> _SHIFT) + (a_high * b_low >> _SHIFT) + (carry >> _SHIFT)
    return high


def block_words(seed: int, copy: int, counters: Words) -> Words:
    """One Philox block of four words for each counter; for things that are not rows (documents, pairs).

    Args:
        counters: uint64 (N, 4), the last column being the domain.

    Returns:
        uint64 (N, 4): the first four words of `numpy.random.Philox(key=[seed, copy], counter=counters[i])`. About
        4 million blocks a second: vectorised over counters, where numpy's generator would need a new state for each.
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        x0, x1, x2, x3 = (counters[:, i].astype(np.uint64) for i in range(4))
        # numpy steps its 256-bit counter before it draws.
        carry = np.ones(len(counters), np.uint64)
        x0 = x0 + carry
        carry = carry & (x0 == 0)
        x1 = x1 + carry
        carry = carry & (x1 == 0)
        x2 = x2 + carry
        x3 = x3 + (carry & (x2 == 0))
        key0, key1 = seed, copy
        for _ in range(10):
            k0, k1 = np.uint64(key0 & MAX_SEED), np.uint64(key1 & MAX_SEED)
            high0, low0 = _multiply_high(x0, _MULTIPLIERS[0]), x0 * _MULTIPLIERS[0]
            high1, low1 = _multiply_high(x2, _MULTIPLIERS[1]), x2 * _MULTIPLIERS[1]
            x0, x1, x2, x3 = high1 ^ x1 ^ k0, low1, high0 ^ x3 ^ k1, low0
            key0, key1 = key0 + _WEYL[0], key1 + _WEYL[1]
    return np.stack([x0, x1, x2, x3], axis=1)
