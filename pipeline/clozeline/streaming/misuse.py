"""Finds out, where that can be seen, that a stream is used in a way that would lose rows or pile up batches."""

from __future__ import annotations

import sys

from clozeline.errors import ConfigError

_FRAMES = 24  # from a stream up to the trainer's loop
_SPLITTERS = ("IterableDatasetShard", "DataLoaderDispatcher")  # of accelerate: they split what every rank reads in full


def check_caller(batched: bool, world_size: int) -> None:
    """Looks who iterates.

    Args:
        batched: the stream gives whole batches.
        world_size: ranks that the stream splits its rows between.

    Raises:
        ConfigError: a `DataLoader` would collate whole batches once more, or accelerate would split what is split already.
    """
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        caller = frame.f_locals.get("self")
        kind = type(caller).__name__
        if batched and kind == "_IterableDatasetFetcher" and getattr(caller, "auto_collation", False):
            raise ConfigError(
                "this stream gives whole batches, and the DataLoader would put batches of them together: use TokenLoader(stream), "
                "DataLoader(stream, batch_size=None), or a stream without batch_size (for Hugging Face's Trainer)"
            )
        if world_size > 1 and kind in _SPLITTERS and type(caller).__module__.startswith("accelerate."):
            raise ConfigError(
                f"accelerate shares out the rows of this stream, which has shared them out between {world_size} ranks already, so "
                "most would never be seen: make the stream with rank=0, world_size=1, or iterate over TokenLoader(stream) "
                "without accelerator.prepare"
            )
        if frame.f_back is None:
            return
        frame = frame.f_back
