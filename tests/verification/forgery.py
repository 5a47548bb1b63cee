"""Data sets that are wrong though their files are in order."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from clozeline.store.dataset import Data
from clozeline.store.shards import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np


def forge(folder: Path, **changed: Callable[[int, int, dict[str, np.ndarray]], np.ndarray]) -> None:
    """Writes shards anew with other columns, and a manifest to fit: a wrong data set whose files are in order.

    Args:
        changed: for a column, a function of (copy, shard, columns) that gives its new values.
    """
    data = Data(folder)
    entries = []
    with data.location.lock():
        for i, entry in enumerate(data.manifest.shards):
            shard = data.shard(i)
            blocks = [{k: v.copy() for k, v in block.items()} for block in shard.batches()]
            writer = ShardWriter(
                data.location, entry.file, shard.types, data.metadata, copy=entry.copy, shard=entry.shard
            )
            with writer:
                for block in blocks:
                    new = {name: function(entry.copy, entry.shard, block) for name, function in changed.items()}
                    writer.write({**block, **new})
            entries.append(writer.entry)
        manifest = replace(data.manifest, shards=tuple(entries))
        data.location.write("manifest.json", manifest.to_file().encode())
        state = json.loads(data.location.read("state.json")) | {"_fingerprint": manifest.sha256[:16]}
        data.location.write("state.json", json.dumps(state).encode())
        data.location.remove_work()
