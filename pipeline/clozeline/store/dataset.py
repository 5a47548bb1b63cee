"""A finished data set: its manifest and its shards, opened one by one as they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clozeline.errors import DataError
from clozeline.store.location import Location, find_location
from clozeline.store.manifest import Manifest, Metadata
from clozeline.store.shards import RESTORE
from clozeline.store.sparse import Shard, open_shard

if TYPE_CHECKING:
    import os

STAGES = {"sharding": "text", "packing": "packed", "masking": "masked"}


class Data:
    """A finished data set.

    Args:
        path: its folder, or a place that reads like one.
        stages: the kinds that will do here; any when empty.
        digests: check a shard's sha256 when it is opened, not only its bytes and rows.

    Raises:
        DataError: not a finished data set, or of another kind.
    """

    def __init__(self, path: str | os.PathLike[str] | Location, *stages: str, digests: bool = False) -> None:
        self.location = path if isinstance(path, Location) else find_location(path)
        self.manifest = Manifest.load(self.location)
        if stages and self.metadata.stage not in stages:
            wanted = " or ".join(STAGES[s] for s in stages)
            raise DataError(f"{path}: holds {STAGES[self.metadata.stage]} data, {wanted} data is needed here")
        self._digests = digests
        self._shards: dict[int, Shard] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": {}}  # memory maps stay behind when a data set goes to another process

    @property
    def metadata(self) -> Metadata:
        return self.manifest.metadata

    def shard(self, index: int) -> Shard:
        """The index-th shard of the manifest, opened once."""
        if index not in self._shards:
            entry = self.manifest.shards[index]
            shard = open_shard(self.location, entry, self.manifest.raw_of(entry), self.metadata)
            for file in self.manifest.files_of(entry) if self._digests else ():
                if self.location.sha256(file.file) != file.sha256:
                    raise DataError(f"{self.location}/{file.file}: its sha256 is not the manifest's; {RESTORE}")
            said = (shard.schema_metadata.get("copy"), shard.schema_metadata.get("shard"))
            if shard.metadata != self.metadata or said != (shard.entry.copy, shard.entry.shard):
                raise DataError(f"{shard.path}: belongs to other work than the manifest beside it; {RESTORE}")
            self._shards[index] = shard
        return self._shards[index]

    def close(self, index: int) -> None:
        """Lets go of a shard's memory map, once nobody reads from it."""
        self._shards.pop(index, None)

    @property
    def tokenizer_path(self) -> str:
        """The copy of the tokenizer that the data set carries."""
        return f"{self.location}/tokenizer"
