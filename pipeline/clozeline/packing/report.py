"""What packing has made of documents, in the same names for every scheme, so that schemes can be compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from clozeline.errors import DataError

if TYPE_CHECKING:
    from clozeline.store.dataset import Data


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingReport:
    """How documents lie in rows.

    Attributes:
        path, packing: the data set and its scheme.
        row_length: L, of the longest rows.
        rows, positions: how many; positions are the sum of all rows' lengths.
        tokens: positions that are not padding; `text_tokens` those of documents.
        fill, padding_share: tokens and padding as shares of the positions.
        documents: that are in rows; `documents_cut` of them are not whole in one row.
        documents_per_row: parts of documents in a row, on average.
        tokens_in: that the tokenizer gave; `added` and `dropped` tokens by reason.
    """

    path: str
    packing: str
    row_length: int
    rows: int
    positions: int
    tokens: int
    text_tokens: int
    fill: float
    padding_share: float
    documents: int
    documents_cut: int
    documents_per_row: float
    tokens_in: int
    added: dict[str, int]
    dropped: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def packing_report(data: Data) -> PackingReport:
    """Of a packed data set, or of the rows that a masked one was made of.

    Raises:
        DataError: holds text.
    """
    manifest, metadata = data.manifest, data.metadata
    stages = [entry["stage"] for entry in metadata.lineage] + [metadata.stage]
    if "packing" not in stages or metadata.row_length is None:
        raise DataError(f"{data.location}: holds text, which is not packed; give packed or masked data")
    ledger = (*manifest.history, manifest.ledger)[stages.index("packing")]
    entries = [entry for entry in manifest.shards if entry.copy == 0]
    rows = sum(entry.rows for entry in entries)
    positions = sum(entry.rows * (entry.row_length or metadata.row_length) for entry in entries)
    tokens, frame = ledger.tokens, ("template", "separators")
    return PackingReport(
        path=str(data.location),
        packing=metadata.config_of("packing").get("packing", "concat"),
        row_length=metadata.row_length,
        rows=rows,
        positions=positions,
        tokens=tokens.out,
        text_tokens=tokens.out - sum(tokens.added[reason] for reason in frame),
        fill=tokens.out / max(1, positions),
        padding_share=1 - tokens.out / positions if positions else 0.0,
        documents=ledger.documents.out,
        documents_cut=ledger.counts["documents_cut"],
        documents_per_row=ledger.counts["document_parts"] / max(1, rows),
        tokens_in=tokens.taken,
        added={reason: n for reason, n in sorted(tokens.added.items()) if n},
        dropped={reason: n for reason, n in sorted(tokens.dropped.items()) if n},
    )
