"""`verify`: a data set against its own account, and against the data set it was made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import DataError
from clozeline.run.stage import Progress, RunOptions
from clozeline.store.dataset import Data
from clozeline.store.masks import TokenCounts, mask_rule, mask_vocabulary, stored_counts
from clozeline.store.shards import TokenShard
from clozeline.verification.files import check_digest, check_ledger, check_metadata, check_rows, check_text
from clozeline.verification.findings import Findings, VerifyResult
from clozeline.verification.replay import check_labels, check_replay, unmask

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from clozeline.store.location import Location
    from clozeline.store.manifest import Metadata, ShardEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyJob:
    """Reads one shard and checks everything that can be known from it alone.

    Attributes:
        against, against_entry: the packed shard that it was masked from, where that is at hand.
        digests: recompute sha256.
        counts: of tokens, where replacements were drawn by them.
    """

    location: Location
    entry: ShardEntry
    metadata: Metadata
    against: Location | None = None
    against_entry: ShardEntry | None = None
    digests: bool = True
    counts: TokenCounts | None = None

    def __call__(self) -> Findings:
        findings = Findings()
        entry, where = self.entry, f"{self.location}/{self.entry.file}"
        if self.digests:
            check_digest(self.location, entry.file, entry.sha256, findings)
        if self.metadata.stage == "sharding":
            check_text(self.location, entry, findings)
            return findings
        try:
            shard = TokenShard(self.location, entry)
            packed = TokenShard(self.against, self.against_entry) if self.against and self.against_entry else None
        except DataError as error:
            findings.add("layout", str(error))
            return findings
        check_metadata(shard, self.metadata, findings)
        wanted = {"input_ids", "attention_mask", "num_tokens"} | (
            {"labels"} if self.metadata.stage == "masking" else set()
        )
        missing = sorted(wanted - set(shard.columns()))
        if missing:
            findings.add("layout", f"{where}: has no column {', '.join(missing)}")
            return findings
        row = tokens = 0
        for columns in shard.batches():
            self._check(where, columns, row, packed, findings)
            row += len(columns["input_ids"])
            tokens += int(columns["num_tokens"].sum(dtype=np.int64))
        if tokens != entry.tokens:
            findings.add("layout", f"{where}: {tokens:,} tokens, the manifest says {entry.tokens:,}")
        return findings

    def _check(
        self, where: str, columns: dict[str, NDArray[Any]], row: int, packed: TokenShard | None, findings: Findings
    ) -> None:
        metadata, entry = self.metadata, self.entry
        check_rows(where, columns, row, metadata, findings)
        if metadata.stage != "masking":
            return
        facts, seed = metadata.tokenizer, metadata.seed
        assert facts is not None
        assert seed is not None
        ids, labels, vocabulary = (
            columns["input_ids"],
            columns["labels"],
            mask_vocabulary(facts, mask_rule(metadata), self.counts),
        )
        check_labels(where, row, ids, labels, vocabulary, findings)
        check_replay(
            where,
            columns,
            mask_rule(metadata),
            vocabulary,
            seed=seed,
            copy=entry.copy,
            shard=entry.shard,
            first_row=row,
            findings=findings,
        )
        if packed is not None:
            rows = np.arange(row, row + len(ids))
            if rows[-1] >= packed.entry.rows:
                findings.add("unmasking", f"{where}: {entry.rows:,} rows, {packed.path} has {packed.entry.rows:,}")
                return
            differs = unmask(ids, labels) != packed.take("input_ids", rows)
            if differs.any():
                bad, position = np.argwhere(differs)[0].tolist()
                findings.add(
                    "unmasking",
                    f"{where}, row {row + bad}, position {position}: unmasked it is not what stands in {packed.path}",
                    int(differs.any(axis=1).sum()),
                )


def verify(
    path: str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | None = None,
    digests: bool = True,
    run: RunOptions | None = None,
) -> VerifyResult:
    """Checks a data set: its files, its ledger, and, where it is masked, every mask.

    Args:
        path: what `shard`, `pack` or `mask` wrote.
        against: the packed data set that it was masked from; unmasked rows are compared with it.
        digests: recompute the sha256 of every file.

    Returns:
        The verdict; a data set that is wrong is no error.

    Raises:
        DataError: `path` or `against` is no finished data set, `against` is not where `path` comes from, or the masks are of
            a version that is not known here.
    """
    run = run or RunOptions()
    data = Data(path)
    manifest, metadata = data.manifest, data.metadata
    findings = Findings()
    packed = counts = None
    if against is not None:
        packed = Data(against, "packing")
        if metadata.stage != "masking" or packed.metadata.fingerprint != metadata.upstream:
            raise DataError(f"{path}: was not made from {against}; give the packed data set that it was masked from")
    if metadata.stage == "masking":
        counts = stored_counts(data) if mask_rule(metadata).replacement == "frequency" else None
    for name, sha256 in manifest.files.items():
        if digests:
            check_digest(data.location, name, sha256, findings)
    check_ledger(str(path), manifest, findings)
    jobs = [
        VerifyJob(
            location=data.location,
            entry=entry,
            metadata=metadata,
            against=packed.location if packed else None,
            against_entry=packed.manifest.shards[entry.shard] if packed else None,
            digests=digests,
            counts=counts,
        )
        for entry in manifest.shards
    ]
    with run.open_executor() as executor:
        for done, found in enumerate(executor.map(VerifyJob.__call__, jobs), 1):
            findings.update(found)
            if run.on_progress is not None:
                size = sum(entry.bytes for entry in manifest.shards[:done])
                run.on_progress(Progress(stage="verify", done=done, total=len(jobs), shards=done, bytes=size))

    checks = []
    if digests:
        checks.append(findings.check("digests", f"sha256 of {len(manifest.shards) + len(manifest.files)} files"))
    checks.append(findings.check("layout", f"{len(manifest.shards)} shards with {manifest.rows:,} rows"))
    checks.append(findings.check("ledger", f"{1 + len(manifest.history)} stages close and follow each other"))
    if metadata.stage != "sharding":
        checks.append(findings.check("metadata", "equal in all shards"))
        checks.append(findings.check("rows", "ids exist, attention and padding agree"))
    if metadata.stage == "masking":
        checks.append(findings.check("labels", "-100 or the original ordinary id; allowed replacements"))
        checks.append(findings.check("replay", f"every mask derived again from seed {metadata.seed}"))
        if packed is not None:
            checks.append(findings.check("unmasking", f"gives back the rows of {against}"))
    return VerifyResult(
        path=str(path),
        stage=metadata.stage,
        ok=all(check.ok for check in checks),
        rows=manifest.rows,
        tokens=manifest.tokens,
        bytes=manifest.bytes,
        seed=metadata.seed,
        checks=tuple(checks),
    )
