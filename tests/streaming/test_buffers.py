"""Buffers: memory is used again, but never while anybody can see it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from clozeline import TokenStream
from clozeline.streaming.buffers import Buffers

INT64 = np.dtype(np.int64)


def test_memory_that_nobody_holds_is_given_out_again() -> None:
    buffers = Buffers()
    first = buffers.empty((3, 4), INT64).ctypes.data
    assert buffers.empty((3, 4), INT64).ctypes.data == first


def test_memory_that_somebody_holds_is_not() -> None:
    buffers = Buffers()
    holders = [
        lambda a: a,
        lambda a: a[1:],
        torch.from_numpy,
        lambda a: torch.from_numpy(a)[0],
        lambda a: torch.from_numpy(a).numpy().T,
        lambda a: {"labels": torch.from_numpy(a).view(-1)},
        lambda a: torch.from_numpy(a).untyped_storage(),
        lambda a: memoryview(a),
    ]
    held = [hold(buffers.empty((3, 4), INT64)) for hold in holders]
    addresses = {a.ctypes.data for a in buffers._arrays[(3, 4), INT64]}
    assert len(addresses) == len(held)
    assert buffers.empty((3, 4), INT64).ctypes.data not in addresses


def test_batches_that_are_kept_keep_their_rows(packed: Path) -> None:
    kept = [b["input_ids"] for b in TokenStream(packed, batch_size=4)]
    views = [b["input_ids"][:, 1:3] for b in TokenStream(packed, batch_size=4)]
    one_by_one = [b["input_ids"].tolist() for b in TokenStream(packed, batch_size=4)]
    assert [k.tolist() for k in kept] == one_by_one
    assert [v.tolist() for v in views] == [[row[1:3] for row in b] for b in one_by_one]
