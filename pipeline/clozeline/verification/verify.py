"""`verify`: a data set against its own account, against the data set it was made of, and its masks against chance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from clozeline.errors import DataError
from clozeline.run.stage import RunOptions
from clozeline.store.dataset import Data
from clozeline.store.masks import mask_rule, stored_counts
from clozeline.verification.files import check_digest, check_ledger, check_manifest
from clozeline.verification.findings import Check, Findings, VerifyResult
from clozeline.verification.jobs import label_checks, run_jobs
from clozeline.verification.report import report
from clozeline.verification.rows import RowDecoder, decode_row
from clozeline.verification.shard_job import VerifyJob
from clozeline.verification.sketch import WINDOW
from clozeline.verification.statistics import judge, needed_bits

if TYPE_CHECKING:
    import os

    from clozeline.store.manifest import Manifest, ShardEntry
    from clozeline.verification.rows import Piece


def verify(
    path: str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | None = None,
    digests: bool = True,
    html: str | os.PathLike[str] | None = None,
    run: RunOptions | None = None,
) -> VerifyResult:
    """Checks a data set: its files, its ledger, and, where it is masked, every mask.

    Args:
        path: what `shard`, `pack` or `mask` wrote.
        against: the packed data set that it was masked from; unmasked rows are compared with it.
        digests: recompute the sha256 of every file.
        html: a file to write a report to, which stands on its own.

    Returns:
        The verdict; a data set that is wrong is no error. Of right data sets the statistics reject one in 10,000 at most.

    Raises:
        DataError: `path` or `against` is no finished data set, `against` is not where `path` comes from, or the masks are of
            a version that is not known here.
    """
    run = run or RunOptions()
    data = Data(path)
    manifest, metadata = data.manifest, data.metadata
    findings = Findings()
    packed = None
    if against is not None:
        packed = Data(against, "packing")
        if metadata.stage != "masking" or packed.metadata.fingerprint != metadata.upstream:
            raise DataError(f"{path}: was not made from {against}; give the packed data set that it was masked from")
    jobs = _jobs(data, packed, digests=digests)
    if digests:
        check_manifest(data.location, findings)
    for name, sha256 in manifest.files.items():
        if digests:
            check_digest(data.location, name, sha256, findings)
    check_ledger(str(path), manifest, findings)
    total = run_jobs(jobs, findings, run)
    checks = _checks(manifest, findings, digests=digests, against=against)
    if total is not None:
        checks += judge(total, mask_rule(metadata), jobs[0].vocabulary)
    result = VerifyResult(
        path=str(path),
        stage=metadata.stage,
        ok=all(check.ok for check in checks),
        rows=manifest.rows,
        tokens=manifest.tokens,
        bytes=manifest.bytes,
        seed=metadata.seed,
        checks=tuple(checks),
    )
    if html is not None:
        rule, vocabulary = (mask_rule(metadata), jobs[0].vocabulary) if total is not None else (None, None)
        text = report(result, total, rule, vocabulary, manifest, _some_rows(data))
        Path(html).write_text(text, "utf-8")
    return result


def _some_rows(data: Data) -> list[tuple[str, list[Piece]]]:
    """The first rows of the first and last copy, where they can be read."""
    if data.metadata.stage == "sharding":
        return []
    copies = sorted({entry.copy for entry in data.manifest.shards})
    wanted = [(copy, row) for copy in dict.fromkeys((copies[0], copies[-1])) for row in range(2)]
    try:
        decoder = RowDecoder.of(data)
        return [(f"row {row}, copy {copy}", decode_row(data, decoder, row, copy)) for copy, row in wanted]
    except (DataError, OSError):  # told of by the checks
        return []


def _jobs(data: Data, packed: Data | None, *, digests: bool) -> list[VerifyJob]:
    metadata = data.metadata
    counts = None
    if metadata.stage == "masking" and mask_rule(metadata).replacement == "frequency":
        counts = stored_counts(data)
    by_shard: dict[int, list[ShardEntry]] = {}
    for entry in data.manifest.shards:
        by_shard.setdefault(entry.shard, []).append(entry)
    patterns = data.manifest.rows * (-(-(metadata.row_length or 1) // WINDOW))
    indices = sorted(by_shard)
    fellows = {a: by_shard[b][0] for a, b in zip(indices[::2], indices[1::2], strict=False)}
    return [
        VerifyJob(
            location=data.location,
            entries=tuple(by_shard[shard]),
            metadata=metadata,
            against=(packed.location, packed.manifest.shards[shard]) if packed else None,
            fellow=fellows.get(shard) if metadata.stage == "masking" else None,
            raw=data.manifest.raw_of(by_shard[shard][0]),
            fellow_raw=data.manifest.raw_of(fellows[shard]) if shard in fellows else None,
            digests=digests,
            counts=counts,
            needed=needed_bits(patterns),
        )
        for shard in indices
    ]


def _checks(manifest: Manifest, findings: Findings, *, digests: bool, against: object) -> list[Check]:
    metadata, shards = manifest.metadata, len(manifest.shards)
    checks = []
    if digests:
        checks.append(findings.check("digests", f"sha256 of {shards + len(manifest.raw) + len(manifest.files)} files"))
    checks.append(findings.check("layout", f"{shards} shards with {manifest.rows:,} rows"))
    checks.append(findings.check("ledger", f"{1 + len(manifest.history)} stages close and follow each other"))
    if metadata.stage != "sharding":
        checks.append(findings.check("metadata", "equal in all shards"))
        checks.append(findings.check("rows", "ids exist, attention and padding agree"))
    if metadata.stage == "masking":
        checks.append(findings.check("replay", f"every mask derived again from seed {metadata.seed}"))
        if against is not None:
            checks.append(findings.check("unmasking", f"gives back the rows of {against}"))
        checks += label_checks(findings, mask_rule(metadata))
    return checks
