"""The account of what came in and what became of it: in + added = out + dropped, for each unit, by named reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from clozeline.errors import LedgerError


@dataclass(slots=True)
class Account:
    """One unit (documents or tokens) of one stage.

    Attributes:
        taken, out: how many came in and went out.
        added, dropped: by named reason.
    """

    taken: int = 0
    out: int = 0
    added: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def difference(self) -> int:
        """What is unaccounted for; 0 when the account closes."""
        return self.taken + self.added.total() - self.out - self.dropped.total()

    def add(self, other: Account) -> None:
        self.taken += other.taken
        self.out += other.out
        self.added.update(other.added)
        self.dropped.update(other.dropped)


@dataclass(slots=True)
class Ledger:
    """The accounts of a shard or a data set.

    Attributes:
        documents, tokens: the two accounts that must close. Tokens are positions that are not padding.
        counts: what else is worth knowing by name (padding, unknown tokens, selected tokens, documents changed); these
            are observations and balance nothing.
    """

    documents: Account = field(default_factory=Account)
    tokens: Account = field(default_factory=Account)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: Ledger) -> None:
        self.documents.add(other.documents)
        self.tokens.add(other.tokens)
        self.counts.update(other.counts)

    def check(self, where: str) -> None:
        """Raises LedgerError, naming `where`, when an account does not close."""
        for unit, account in (("documents", self.documents), ("tokens", self.tokens)):
            if account.difference:
                raise LedgerError(
                    f"{where}: the ledger of {unit} does not close: {account.taken:,} in + {account.added.total():,} added "
                    f"- {account.out:,} out - {account.dropped.total():,} dropped = {account.difference:,}; "
                    "please report this as a fault of clozeline"
                )

    def to_json(self) -> dict[str, Any]:
        def account(a: Account) -> dict[str, Any]:
            return {
                "in": a.taken,
                "added": dict(sorted(a.added.items())),
                "dropped": dict(sorted(a.dropped.items())),
                "out": a.out,
            }

        return {
            "documents": account(self.documents),
            "tokens": account(self.tokens),
            "counts": dict(sorted(self.counts.items())),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Ledger:
        def account(a: dict[str, Any]) -> Account:
            return Account(whole(a["in"]), whole(a["out"]), counter(a["added"]), counter(a["dropped"]))

        def counter(counts: dict[str, Any]) -> Counter[str]:
            return Counter({str(reason): whole(n) for reason, n in counts.items()})

        def whole(n: Any) -> int:
            if type(n) is not int:
                raise ValueError(f"{str(n)[:50]!r} stands in the ledger for a whole number")
            return n

        return cls(account(data["documents"]), account(data["tokens"]), counter(data["counts"]))
