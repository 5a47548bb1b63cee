"""Parcels: what comes out is what was put in, however many are under way; memory is filled anew only when it has been read."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator
from multiprocessing import reduction
from typing import Any

import numpy as np
import torch.multiprocessing  # noqa: F401  makes tensors picklable by their file descriptors
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeline.streaming.parcels import Parcel, Receiver, Sender

PIECES = 3


def sent(parcel: Parcel) -> Parcel:
    """As another process sees it."""
    received: Parcel = pickle.loads(bytes(reduction.ForkingPickler.dumps(parcel)))
    return received


def batches(number: int, sizes: list[int]) -> list[dict[str, np.ndarray[Any, Any]]]:
    return [
        {
            "input_ids": np.full((rows, 5), 100 * number + i, np.uint16),
            "attention_mask": np.full((rows, 5), i % 2, np.uint8),
            "row": np.arange(rows),
        }
        for i, rows in enumerate(sizes)
    ]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=12),
    st.lists(st.booleans(), max_size=24),
    st.booleans(),
)
def test_what_comes_out_is_what_was_put_in(sizes: list[list[int]], reads: list[bool], once_more: bool) -> None:
    """Parcels are sent and read in any interleaving, more of them under way than there are pieces."""
    in_use = np.zeros((2, PIECES), np.uint8)
    for _ in range(1 + once_more):  # a pass that is broken off leaves pieces in use, and the next one finds them free
        sender, receiver = Sender(1, in_use[1]), Receiver(in_use)
        under_way: deque[tuple[Parcel, list[Any]]] = deque()
        todo = deque(enumerate(sizes))

        def read(under_way: deque[tuple[Parcel, list[Any]]] = under_way, receiver: Receiver = receiver) -> None:
            parcel, expected = under_way.popleft()
            found = [{name: values.copy() for name, values in b.items()} for b in receiver.unwrap(parcel)]
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                assert one.keys() == other.keys()
                for name in one:
                    assert one[name].dtype == other[name].dtype
                    np.testing.assert_array_equal(one[name], other[name])

        for reading in [*reads, *[False] * len(sizes)]:
            if reading and under_way:
                read()
            elif todo:
                number, rows = todo.popleft()
                made = batches(number, rows)
                under_way.append((sent(sender.wrap(made)), made))
        while under_way and not once_more:
            read()


def pieces(parcels: Iterator[Parcel]) -> list[tuple[int | None, bool]]:
    return [(p.piece, p.memory is not None) for p in parcels]


def test_memory_is_sent_once_and_filled_anew_when_it_has_been_read() -> None:
    in_use = np.zeros((1, 2), np.uint8)
    sender, receiver = Sender(0, in_use[0]), Receiver(in_use)
    first, second, third = (sender.wrap(batches(n, [4])) for n in range(3))
    assert pieces(iter([first, second, third])) == [(0, True), (1, True), (None, True)]
    list(receiver.unwrap(second))
    again = sender.wrap(batches(3, [4]))
    assert pieces(iter([again])) == [(1, False)]
    list(receiver.unwrap(first))
    assert pieces(iter([sender.wrap(batches(4, [400]))])) == [(0, True)]  # the old one is too small
