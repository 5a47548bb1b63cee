"""A corpus as tokens on disk, any sentence of it at hand: what segment pairs are drawn from.

Written by a first pass, some files a text shard, and read through memory maps: a second segment may come from anywhere in the
corpus while memory stays what it is. It takes about half of the text's bytes on disk until the data set is finished.

Shapes: D documents of S sentences of T tokens in a text shard.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from mmap import MADV_DONTNEED, mmap
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.packing.engines import worker_engine
from clozeline.packing.reading import read_tokens
from clozeline.store.ledger import Ledger
from clozeline.store.schema import id_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.packing.task import PackTask
    from clozeline.packing.tokens import Columns, Integers, TokenDocuments
    from clozeline.store.documents import DocumentSource
    from clozeline.store.location import DigestingFile, Location
    from clozeline.store.manifest import TokenizerFacts
    from clozeline.store.output import ShardResult


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreJob:
    """Tokenizes the shards of one source into the task's token store."""

    source: DocumentSource
    task: PackTask

    @property
    def name(self) -> str:
        return f"tokens of shard {self.source.shards[0]}"

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        return ()

    @property
    def is_done(self) -> bool:
        return all(self.task.token_store.exists(_name(shard, "json")) for shard in self.source.shards)

    def __call__(self) -> list[ShardResult]:
        task, place = self.task, self.task.token_store
        engine = worker_engine(task.tokenizer_path, task.facts, task.engine)
        for shard, read, stream in self.source.read():
            ledger, seen = Ledger(), 0
            with contextlib.ExitStack() as stack:
                files = _Files(place, shard, task.facts, stack)
                for tokens, batch in read_tokens(stream, engine, task.options, ledger):
                    kept = (tokens.numbers - seen).tolist()
                    seen += len(batch.ids)
                    files.add(tokens, [batch.ids[i] for i in kept], [len(batch.texts[i]) for i in kept])
            facts = {
                "documents": files.documents,
                "ledger": ledger.to_json(),
                "read": read.to_json(),
                "columns": files.dtypes,
            }
            place.write(_name(shard, "json"), json.dumps(facts).encode())
        return []


def _name(shard: int, what: str) -> str:
    return f"{shard:05d}.{what}"


class _Files:
    """The files of one text shard being written. Bounds have one entry more than what they bound, the first being 0."""

    def __init__(self, place: Location, shard: int, facts: TokenizerFacts, stack: contextlib.ExitStack) -> None:
        self._place, self._shard, self._stack = place, shard, stack
        self._open: dict[str, DigestingFile] = {}
        self._id_dtype = id_dtype(facts.vocabulary_size)
        self._tokens = self._sentences = self._name_bytes = self.documents = 0
        self.dtypes: dict[str, str] = {}
        for bounds in ("sentences", "documents", "names"):
            self._put(bounds, np.zeros(1, np.int64))
        for name in ("name_bytes", "text_bytes"):
            self._put(name, np.empty(0, np.int64))

    def _put(self, name: str, values: NDArray[Any] | bytes) -> None:
        if name not in self._open:
            self._open[name] = self._stack.enter_context(self._place.writer(_name(self._shard, name)))
        self._open[name].write(values if isinstance(values, bytes) else values.tobytes())

    def add(self, tokens: TokenDocuments, ids: list[str], text_bytes: list[int]) -> None:
        assert tokens.sentences is not None
        for name, values in tokens.columns.items():
            stored = values.astype(self._id_dtype) if name == "input_ids" else values
            self.dtypes[name] = stored.dtype.str
            self._put(f"column.{name}", stored)
        ends = np.cumsum(tokens.sentences)
        self._put("sentences", self._tokens + ends)
        self._put("documents", self._sentences + np.searchsorted(ends, np.cumsum(tokens.lengths)) + 1)
        names = [i.encode() for i in ids]
        self._put("names", self._name_bytes + np.cumsum([len(n) for n in names], dtype=np.int64))
        self._put("name_bytes", b"".join(names))
        self._put("text_bytes", np.array(text_bytes, np.int64))
        self._tokens += tokens.tokens
        self._sentences += len(ends)
        self._name_bytes += sum(map(len, names))
        self.documents += len(ids)


class TokenStore:
    """What the first pass has written; documents have numbers through the whole corpus.

    Attributes:
        firsts: int64 (text shards + 1,), the number of the first document of each, and of all documents.
    """

    def __init__(self, place: Location, shards: int) -> None:
        self._place = place
        self.firsts = np.cumsum([0, *(self.facts(k)["documents"] for k in range(shards))])
        self._shards: dict[int, _Shard] = {}
        self._touched: set[int] = set()

    def facts(self, shard: int) -> dict[str, Any]:
        """The first pass's account of a text shard."""
        facts: dict[str, Any] = json.loads(self._place.read(_name(shard, "json")))
        return facts

    def _find(self, document: int) -> tuple[_Shard, int]:
        shard = int(np.searchsorted(self.firsts, document, side="right")) - 1
        if shard not in self._shards:
            self._shards[shard] = _Shard(self._place, shard, self.facts(shard)["columns"])
        self._touched.add(shard)
        return self._shards[shard], document - int(self.firsts[shard])

    def bounds(self, document: int) -> Integers:
        """(sentences + 1,): where the sentences of a document begin, and where the last ends."""
        shard, number = self._find(document)
        return shard.bounds(number)

    def columns(self, document: int, start: int, stop: int) -> Columns:
        """Tokens by their places as `bounds` gives them, by name."""
        shard, _ = self._find(document)
        return {name: values[start:stop] for name, values in shard.columns.items()}

    def release(self) -> None:
        """Gives back the memory of what was read so far; the system keeps it as long as there is room."""
        for shard in self._touched:
            self._shards[shard].release()
        self._touched.clear()

    def origins(self, documents: Integers, done: int) -> tuple[list[str], list[int]]:
        """Ids, and bytes of the texts, of documents."""
        found = [shard.origin(number) for shard, number in map(self._find, documents.tolist())]
        return [i for i, _ in found], [n for _, n in found]


class _Shard:
    def __init__(self, place: Location, shard: int, dtypes: dict[str, str]) -> None:
        self._maps: list[mmap] = []

        def read(name: str, dtype: str = "<i8") -> NDArray[Any]:
            data = place.map(_name(shard, name))
            if not isinstance(data, bytes):
                self._maps.append(data)
            return np.frombuffer(data, dtype) if len(data) else np.empty(0, dtype)

        self.columns = {name: read(f"column.{name}", dtype) for name, dtype in dtypes.items()}
        self._sentences, self._documents, self._names = read("sentences"), read("documents"), read("names")
        self._name_bytes, self._text_bytes = read("name_bytes", "u1"), read("text_bytes")

    def release(self) -> None:
        for each in self._maps:
            each.madvise(MADV_DONTNEED)

    def bounds(self, number: int) -> Integers:
        first, last = self._documents[number : number + 2]
        bounds: Integers = self._sentences[first : last + 1]
        return bounds

    def origin(self, number: int) -> tuple[str, int]:
        start, stop = self._names[number : number + 2]
        return self._name_bytes[start:stop].tobytes().decode(), int(self._text_bytes[number])
