"""Checks of what is on disk: digests, layout, metadata, rows that are what a packer makes, the ledger.

Shapes: R rows of L positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import DataError, LedgerError
from clozeline.store.documents import TextShard
from clozeline.store.json_values import parse_json
from clozeline.store.manifest import NAME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.store.location import Location
    from clozeline.store.manifest import Manifest, Metadata, ShardEntry
    from clozeline.store.sparse import Shard
    from clozeline.verification.findings import Findings


def check_digest(location: Location, name: str, sha256: str, findings: Findings) -> None:
    """The bytes of a file are those that the manifest was written for."""
    try:
        found = location.sha256(name)
    except OSError as error:
        findings.add("digests", f"{location}/{name}: {error.strerror or error}; restore it or prepare the data again")
        return
    if found != sha256:
        findings.add(
            "digests",
            f"{location}/{name}: its sha256 is {found[:16]}..., the manifest says {sha256[:16]}...: it was changed after it was "
            "written; restore it or prepare the data again",
        )


def check_manifest(location: Location, findings: Findings) -> None:
    """The manifest is the one that state.json was written with: the only file that can vouch for it."""
    try:
        stated = parse_json(location.read("state.json")).get("_fingerprint")
    except (OSError, ValueError) as error:
        findings.add(
            "digests", f"{location}/state.json: cannot be read ({error}); restore it or prepare the data again"
        )
        return
    if stated != location.sha256(NAME)[:16]:
        findings.add(
            "digests",
            f"{location}: state.json was written with another {NAME}: one of the two was changed after it was written; "
            "restore it or prepare the data again",
        )


def check_metadata(shard: Shard, metadata: Metadata, findings: Findings) -> None:
    """A shard's own metadata are those of the manifest, copy and shard index apart."""
    said = dict(shard.schema_metadata)
    place = said.pop("copy", None), said.pop("shard", None)
    entry, wanted = shard.entry, metadata.to_json()
    # Tuples in ours are lists in what was read.
    differing = [key for key in sorted({*said, *wanted}) if _plain(said.get(key)) != _plain(wanted.get(key))]
    if differing:
        findings.add("metadata", f"{shard.path}: {', '.join(differing)} differ from the manifest's")
    if place != (entry.copy, entry.shard):
        findings.add(
            "metadata",
            f"{shard.path}: says it is copy {place[0]}, shard {place[1]}; the manifest says copy {entry.copy}, shard {entry.shard}",
        )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def check_text(location: Location, entry: ShardEntry, findings: Findings) -> None:
    """A text shard can be read to its end and holds the documents that the manifest counts."""
    try:
        for _, _, documents in TextShard(location=location, entry=entry).read():
            for _ in documents:
                pass
    except (DataError, UnicodeDecodeError, OSError) as error:
        findings.add("layout", str(error))


def check_rows(
    where: str, columns: dict[str, NDArray[Any]], first_row: int, metadata: Metadata, findings: Findings
) -> None:
    """Ids exist in the vocabulary; attention, token count and padding agree.

    Args:
        columns: input_ids (R, L), attention_mask (R, L), num_tokens (R,).
    """
    facts = metadata.tokenizer
    assert facts is not None
    ids, attention, tokens = columns["input_ids"], columns["attention_mask"], columns["num_tokens"]
    if int(ids.max(initial=0)) >= facts.vocabulary_size:
        row, position = np.argwhere(ids >= facts.vocabulary_size)[0].tolist()
        findings.add(
            "rows",
            f"{where}, row {first_row + row}, position {position}: id {ids[row, position]}, "
            f"the vocabulary ends at {facts.vocabulary_size - 1}",
            int((ids >= facts.vocabulary_size).sum()),
        )
    inside = np.arange(ids.shape[1]) < tokens[:, None]
    bad = np.flatnonzero((attention != inside).any(axis=1))
    for row in bad[:1].tolist():
        position = int(np.flatnonzero(attention[row] != inside[row])[0])
        findings.add(
            "rows",
            f"{where}, row {first_row + row}, position {position}: attention_mask is {attention[row, position]}, "
            f"num_tokens {tokens[row]}",
            len(bad),
        )
    short = np.flatnonzero(tokens < ids.shape[1])
    wrong = short[((ids[short] != facts.pad_id) & ~inside[short]).any(axis=1)]
    for row in wrong[:1].tolist():
        position = int(np.flatnonzero((ids[row] != facts.pad_id) & ~inside[row])[0])
        findings.add(
            "rows",
            f"{where}, row {first_row + row}, position {position}: id {ids[row, position]} stands in the padding",
            len(wrong),
        )


def check_ledger(path: str, manifest: Manifest, findings: Findings) -> None:
    """Every stage's account closes, each stage took what the one before gave, and the shards hold what came out."""
    stages = [entry["stage"] for entry in manifest.metadata.lineage] + [manifest.metadata.stage]
    ledgers = [*manifest.history, manifest.ledger]
    if len(ledgers) != len(stages):
        findings.add("ledger", f"{path}: {len(ledgers)} ledgers for {len(stages)} stages")
    for stage, ledger in zip(stages, ledgers, strict=False):
        try:
            ledger.check(f"{path}, {stage}")
        except LedgerError as error:
            findings.add("ledger", str(error))
    for i in range(1, min(len(stages), len(ledgers))):
        before, after = ledgers[i - 1], ledgers[i]
        if stages[i] == "masking":
            copies = int(manifest.metadata.config["copies"])
            gave, took, unit = before.tokens.out * copies, after.tokens.taken, "tokens"
        else:
            gave, took, unit = before.documents.out, after.documents.taken, "documents"
        if gave != took:
            findings.add("ledger", f"{path}: {stages[i - 1]} gave {gave:,} {unit}, {stages[i]} took {took:,}")
    total = manifest.rows if manifest.metadata.stage == "sharding" else manifest.tokens
    account = manifest.ledger.documents if manifest.metadata.stage == "sharding" else manifest.ledger.tokens
    if account.out != total:
        findings.add("ledger", f"{path}: the ledger says {account.out:,} came out, the shards hold {total:,}")
