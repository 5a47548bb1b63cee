"""A data set in the making: who may write, what is done already, and the moment it becomes visible.

Beside the shards an unfinished data set keeps `.clozeline/`: the lock, `plan.json` (what is being made), and a record
for each finished shard. A shard is done when its record is there; the manifest is written last and the folder removed.
A kill at any instant leaves either no manifest, and a run that can be resumed, or a finished data set.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from clozeline.errors import DestinationError, InputError, LedgerError
from clozeline.store.json_values import parse_json
from clozeline.store.ledger import Ledger
from clozeline.store.location import LOCK, RUN, WORK, Location
from clozeline.store.manifest import NAME, Manifest, Metadata, ShardEntry
from clozeline.store.schema import features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_PLAN = f"{WORK}/plan.json"
_DONE = f"{WORK}/done"
RUN_FACTS = "run.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardResult:
    """A shard that a job has written.

    Attributes:
        read: the ledger of the documents that the rows were made of, where the same job read them from files.
    """

    stage: str
    entry: ShardEntry
    ledger: Ledger
    read: Ledger | None = None


@dataclass(kw_only=True)
class Output:
    """One data set to be made.

    Attributes:
        location: its folder.
        metadata: what it will be.
        columns: of its shards.
        shards: the file names it will have.
        inputs: facts by which `--resume` knows the same input again (bytes and modification times); kept out of the manifest.
        files: further files of the data set (the tokenizer's), by name.
        raw: packed shards that stand beside the shards made of them, put there by the jobs.
        history: gives the ledgers of the stages before, oldest first, when all is done; None where jobs bring that of reading.
    """

    location: Location
    metadata: Metadata
    columns: dict[str, pa.DataType]
    shards: tuple[str, ...]
    inputs: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)
    raw: tuple[ShardEntry, ...] = ()
    history: Callable[[], tuple[Ledger, ...]] | None = None
    done: dict[str, ShardResult] = field(default_factory=dict, init=False)
    finished: Manifest | None = field(default=None, init=False)

    @contextlib.contextmanager
    def open(self, *, resume: bool, force: bool) -> Iterator[Output]:
        """Takes the folder for writing.

        Raises:
            DestinationError: it is taken, locked, or holds other work than this.
        """
        self.refuse_foreign(force=force, resume=resume)
        with self.location.lock():
            if force:
                for name in (NAME, *self.location.names()):  # the manifest first: half a data set is none
                    if name != WORK:
                        self.location.remove(name)
                for name in (self.location / WORK).names():
                    if name != LOCK and not name.startswith(
                        RUN
                    ):  # what another run left, its passes over the corpus included
                        self.location.remove(f"{WORK}/{name}")
            try:
                if self.location.exists(NAME):
                    self.finished = Manifest.load(self.location)
                    self._compare(self.finished.metadata.to_json(), self._recorded_inputs())
                elif self.location.exists(_PLAN):
                    self._read_plan()
                else:
                    plan = {"metadata": self.metadata.to_json(), "inputs": self.inputs}
                    self.location.write(_PLAN, json.dumps(plan).encode())
                yield self
            except InputError:
                if self.finished is None:
                    # Mended input or other options make other bytes: what stands here can never be resumed.
                    self._discard()
                raise
            finally:
                if self.location.exists(NAME):
                    self.location.remove_work()

    def _discard(self) -> None:
        self.location.remove_work()
        for name in [*self.shards, *(entry.file for entry in self.raw)]:
            self.location.remove(name)
        if not self.location.names():
            self.location.remove_folder()

    def refuse_foreign(self, *, force: bool, resume: bool) -> None:
        """Raises DestinationError where the folder holds what this work may not replace or finish."""
        if not self.location.exists():
            return
        if not self.location.is_folder():
            raise DestinationError(f"{self.location}: is a file; DEST is a folder to create")
        finished, started = self.location.exists(NAME), self.location.exists(WORK)
        others = [n for n in self.location.names() if n != WORK]
        if others and not finished and not started:
            raise DestinationError(
                f"{self.location}: is not empty ({others[0]}{', ...' if len(others) > 1 else ''}) and is not a clozeline data set; "
                "choose another DEST or remove it yourself"
            )
        if finished and not self._is_ours():
            raise DestinationError(
                f"{self.location}: its {NAME} was not written by clozeline, or is damaged; "
                "choose another DEST or remove it yourself"
            )
        if finished and not (force or resume):
            raise DestinationError(
                f"{self.location}: holds a finished data set; choose another DEST, or --force to replace it"
            )
        planned = self.location.exists(_PLAN)
        if started and not finished and not (force or resume) and planned:
            raise DestinationError(
                f"{self.location}: holds an unfinished data set; --resume to finish it, or --force to start again"
            )
        if started and not finished and not force and not planned and others:
            raise DestinationError(
                f"{self.location}: holds files of unfinished work, and nothing says of what; --force to start again"
            )

    def _is_ours(self) -> bool:
        try:
            body = parse_json(self.location.read(NAME))
        except (OSError, ValueError):
            return False
        return "format_version" in body and "fingerprint" in body

    def _recorded_inputs(self) -> dict[str, Any] | None:
        if not self.location.exists(RUN_FACTS):
            return None
        try:
            inputs = parse_json(self.location.read(RUN_FACTS)).get("inputs")
        except ValueError:
            return None
        return inputs if isinstance(inputs, dict) else None

    def _compare(self, metadata: dict[str, Any], inputs: dict[str, Any] | None) -> None:
        # Both sides as JSON has them: a tuple is a list there.
        mine = json.loads(json.dumps({"metadata": self.metadata.to_json(), "input": self.inputs}))
        now = _flat(mine)
        there = _flat(
            json.loads(json.dumps({"metadata": metadata, "input": self.inputs if inputs is None else inputs}))
        )
        differing = [
            f"{key.removeprefix('metadata.')}: {there.get(key)} there, {now.get(key)} now"
            for key in sorted({*there, *now})
            if there.get(key) != now.get(key) and key != "metadata.upstream"
        ]
        if not differing and there["metadata.upstream"] != now["metadata.upstream"]:
            differing = ["the input files (their names or their bytes)"]
        if differing:
            more = f"\n  and {len(differing) - 8} more" if len(differing) > 8 else ""
            raise DestinationError(
                f"{self.location}: cannot resume, this is other work than what is there:\n  "
                + "\n  ".join(differing[:8])
                + f"{more}\nRepeat the first command's options, or --force to start again"
            )

    def _read_plan(self) -> None:
        """Checks that what was begun here is this work, and finds what of it is done.

        A record that cannot be read, or that does not fit its shard, counts for nothing: the shard is made again.
        """
        try:
            plan = parse_json(self.location.read(_PLAN))
            metadata, inputs = dict(plan["metadata"]), dict(plan["inputs"])
        except (ValueError, KeyError, TypeError) as error:
            raise DestinationError(
                f"{self.location}/{_PLAN}: damaged ({error}), so what is here cannot be resumed; --force to start again"
            ) from error
        self._compare(metadata, inputs)
        gone = {entry.shard for entry in self.raw if not self._stands(entry)}
        for name in (self.location / _DONE).names():
            try:
                body = parse_json(self.location.read(f"{_DONE}/{name}"))
                result = ShardResult(
                    stage=self.metadata.stage,
                    entry=ShardEntry.from_json(body["entry"]),
                    ledger=Ledger.from_json(body["ledger"]),
                    read=Ledger.from_json(body["read"]) if body["read"] else None,
                )
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            file = result.entry.file
            if file in self.shards and self._stands(result.entry) and result.entry.shard not in gone:
                self.done[file] = result

    def _stands(self, entry: ShardEntry) -> bool:
        return self.location.exists(entry.file) and self.location.size(entry.file) == entry.bytes

    def record(self, result: ShardResult) -> None:
        """Notes that a shard is done; called after the shard stands under its final name."""
        result.ledger.check(f"{self.location}/{result.entry.file}")
        body = {
            "entry": asdict(result.entry),
            "ledger": result.ledger.to_json(),
            "read": result.read.to_json() if result.read else None,
        }
        self.location.write(f"{_DONE}/{result.entry.file}.json", json.dumps(body).encode())
        self.done[result.entry.file] = result

    @property
    def ledger(self) -> Ledger:
        """Of all shards, once they are done."""
        if self.finished is not None:
            return self.finished.ledger
        return _total(self.done[name].ledger for name in self.shards)

    def account(self) -> tuple[Ledger, ...]:
        """The ledgers of every stage up to this one, oldest first, once all is done."""
        if self.finished is not None:
            return (*self.finished.history, self.finished.ledger)
        if self.history is not None:
            return (*self.history(), self.ledger)
        return (_total(self.done[name].read or Ledger() for name in self.shards), self.ledger)

    def publish(self, facts: dict[str, Any]) -> Manifest:
        """Writes everything that makes the shards a data set, the manifest last.

        Args:
            facts: of this run (times, versions, workers): `run.json`, which no digest covers.
        """
        missing = [name for name in self.shards if name not in self.done]
        if missing:
            raise LedgerError(
                f"{self.location}: {missing[0]} was never written; please report this as a fault of clozeline"
            )
        digests = {}
        for name, content in sorted(self.files.items()):
            with self.location.writer(name) as file:
                file.write(content)
            digests[name] = file.sha256
        entries = tuple(self.done[name].entry for name in self.shards)
        *history, ledger = self.account()
        manifest = Manifest(
            metadata=self.metadata, ledger=ledger, history=tuple(history), shards=entries, files=digests, raw=self.raw
        )
        manifest.ledger.check(str(self.location))
        info = {"citation": "", "description": "", "features": features(self.columns), "homepage": "", "license": ""}
        state: dict[str, Any] = {
            "_data_files": [{"filename": e.file} for e in entries],
            "_fingerprint": manifest.sha256[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        }
        self.location.write("dataset_info.json", (json.dumps(info, indent=2) + "\n").encode())
        self.location.write("state.json", (json.dumps(state, indent=2) + "\n").encode())
        self.location.write(RUN_FACTS, (json.dumps({**facts, "inputs": self.inputs}, indent=1) + "\n").encode())
        self.location.sync()  # nothing that the manifest names may be missing after a power failure
        self.location.write(NAME, manifest.to_file().encode())
        self.location.sync()
        self.finished = manifest
        return manifest


def _total(ledgers: Iterable[Ledger]) -> Ledger:
    total = Ledger()
    for ledger in ledgers:
        total.add(ledger)
    return total


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested JSON as one dict with dotted keys. A stage in a lineage goes by its name; other lists are leaves."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, dict) and "stage" in item for item in value):
        value = {item["stage"]: item for item in value}
    if not isinstance(value, dict):
        return {prefix: list(value) if isinstance(value, tuple) else value}
    result = {}
    for key, item in value.items():
        result.update(_flat(item, f"{prefix}.{key}" if prefix else str(key)))
    return result
