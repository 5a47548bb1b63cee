"""The job that makes rows of segment pairs from the token store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clozeline.errors import InputError
from clozeline.packing.pairs import PairDrawer, pair_blocks
from clozeline.packing.parts import open_parts
from clozeline.packing.rows import pair_frame
from clozeline.packing.token_store import TokenStore
from clozeline.store.ledger import Account, Ledger
from clozeline.store.schema import rows_per_batch

if TYPE_CHECKING:
    from clozeline.packing.task import PackTask
    from clozeline.store.output import ShardResult


@dataclass(frozen=True, kw_only=True, slots=True)
class PairJob:
    """Draws the pairs of one text shard once."""

    task: PackTask
    shard: int
    copy: int

    @property
    def name(self) -> str:
        return self.shards[0][1]

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        return self.task.files(self.shard, self.copy)

    def __call__(self) -> list[ShardResult]:
        task, options = self.task, self.task.options
        store = TokenStore(task.token_store, task.text_shards)
        if options.objective == "nsp" and store.firsts[-1] == 1:
            raise InputError(
                "there is one document only, and --objective nsp draws segments of another; use more text or --objective sop"
            )
        facts = store.facts(self.shard)
        ledger, read = Ledger.from_json(facts["ledger"]), Ledger.from_json(facts["read"])
        if self.copy:  # the text is read once, its documents are used again
            documents, tokens = ledger.documents.out, ledger.tokens.taken - ledger.tokens.dropped.total()
            ledger = Ledger(Account(out=documents), Account())
            ledger.documents.added["copies"] = documents
            ledger.tokens.added["copies"] = tokens
        frame = pair_frame(task.facts, options.max_length)
        drawer = PairDrawer(
            store=store,
            options=options,
            capacity=frame.capacity - len(frame.join),
            shard=self.shard,
            copy=self.copy,
            ledger=ledger,
        )
        plan = task.part_plan(self.shard, self.copy)
        with open_parts(plan, task.sinks, store.origins, ledger, count_cuts=False) as parts:
            for block in pair_blocks(drawer, frame, rows_per_batch(options.max_length)):
                parts.add(block)
        return parts.results(None if self.copy else read)
