"""What commands print: results on stdout, progress and warnings on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from clozeline.run.stage import Profile, Progress, StageResult
    from clozeline.store.dataset import Data


# What a terminal would obey, or show in another order: control characters but tab and line feed, and overrides of direction.
_CONTROLS = [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SPELLED = {code: f"\\u{code:04x}" for code in _CONTROLS}


def printable(text: str) -> str:
    """Text of somebody else's (a document, a file name) with control characters spelled out, as JSON would."""
    return text.translate(_SPELLED)


def warn(message: str) -> None:
    click.echo(printable(f"clozeline: warning: {message}"), err=True)


def print_json(value: Any) -> None:
    click.echo(printable(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)))


def progress(*, verbose: bool) -> Callable[[Progress], None] | None:
    """A bar on a terminal; lines when asked; nothing otherwise."""
    if not sys.stderr.isatty():
        if not verbose:
            return None

        def line(p: Progress) -> None:
            click.echo(
                f"clozeline {p.stage}: {p.done} of {p.total} jobs, {p.shards} shards, {p.bytes:,} bytes", err=True
            )

        return line
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs"),
        TextColumn("{task.fields[written]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    state: dict[str, Any] = {}

    def update(p: Progress) -> None:
        if p.stage not in state:
            bar.start()
            state[p.stage] = bar.add_task(p.stage, total=p.total, written="")
        bar.update(state[p.stage], completed=p.done, written=f"{p.bytes / 1e6:,.0f} MB")
        if p.done == p.total:
            bar.stop()

    return update


def print_profile(profile: Profile) -> None:
    """Where the time went: a line for each section, the dearest first."""
    megabytes = profile.input_bytes / 1e6
    total = sum(cpu for _, cpu in profile.sections.values())
    click.echo(
        f"clozeline {profile.stage}: {megabytes:,.1f} MB in {profile.seconds:.2f} s, {megabytes / profile.seconds:,.1f} MB/s, "
        f"{profile.workers} worker{'s' * (profile.workers > 1)}, {total:.2f} s of CPU in jobs",
        err=True,
    )
    click.echo(f"  {'section':<14}{'wall s':>9}{'CPU s':>9}{'of CPU':>8}{'MB per CPU s':>14}", err=True)
    for name, (wall, cpu) in sorted(profile.sections.items(), key=lambda item: -item[1][1]):
        rate = f"{megabytes / cpu:,.0f}" if cpu > 0.0005 else "-"
        click.echo(f"  {name:<14}{wall:>9.3f}{cpu:>9.3f}{cpu / (total or 1):>8.1%}{rate:>14}", err=True)


def describe(result: StageResult) -> str:
    """A stage's result and its ledger, for people."""
    kind = {"sharding": "text", "packing": "packed", "masking": "masked"}[result.stage]
    unit = "documents" if result.stage == "sharding" else "rows"
    seed = f", seed {result.seed}" if result.seed is not None else ""
    lines = [f"{result.path}: {kind}, {result.shards} shards, {result.rows:,} {unit}, {result.bytes:,} bytes{seed}"]
    if result.nothing_to_do:
        lines[0] += " (finished before, nothing to do)"
    for name in ("documents", "tokens"):
        account = result.ledger[name]
        if account["in"] or account["out"]:
            parts = [f"{account['in']:,} in"]
            parts += [f"+ {n:,} {reason.replace('_', ' ')}" for reason, n in account["added"].items()]
            parts += [f"- {n:,} {reason.replace('_', ' ')}" for reason, n in account["dropped"].items()]
            lines.append(f"  {name}: {' '.join(parts)} = {account['out']:,} out")
    counts = {k: n for k, n in result.ledger["counts"].items() if n}
    if counts:
        lines.append("  " + ", ".join(f"{reason.replace('_', ' ')} {n:,}" for reason, n in counts.items()))
    return "\n".join(lines)


def describe_data(data: Data) -> tuple[str, dict[str, Any]]:
    """A finished data set, for people and as JSON."""
    manifest, metadata = data.manifest, data.metadata
    copies = 1 + max((entry.copy for entry in manifest.shards), default=0)
    facts: dict[str, Any] = {
        "path": str(data.location),
        "stage": metadata.stage,
        "shards": len(manifest.shards),
        "copies": copies,
        "rows": manifest.rows,
        "tokens": manifest.tokens,
        "bytes": manifest.bytes,
        "row_length": metadata.row_length,
        "seed": metadata.seed,
        "config": metadata.config,
        "lineage": list(metadata.lineage),
        "ledger": manifest.ledger.to_json(),
        "sha256": manifest.sha256,
    }
    kind = {"sharding": "text", "packing": "packed", "masking": "masked"}[metadata.stage]
    unit = "documents" if metadata.stage == "sharding" else "rows"
    lines = [
        f"{data.location}: {kind}, {len(manifest.shards)} shards, {manifest.rows:,} {unit}, {manifest.bytes:,} bytes"
    ]
    if metadata.row_length and metadata.tokenizer:
        lengths = sorted({entry.row_length or metadata.row_length for entry in manifest.shards})
        positions = sum(entry.rows * (entry.row_length or metadata.row_length) for entry in manifest.shards)
        fill = manifest.tokens / max(1, positions)
        of = ", ".join(map(str, lengths))
        lines.append(f"  rows of {of} tokens, {fill:.2%} full; vocabulary of {metadata.tokenizer.vocabulary_size:,}")
    if metadata.stage == "masking":
        lines.append(f"  {copies} copies under seed {metadata.seed}, mask function version {metadata.mask_function}")
    for stage, config in [*((s["stage"], s["config"]) for s in metadata.lineage), (metadata.stage, metadata.config)]:
        lines.append(f"  {stage}: " + ", ".join(_settings(config)))
    return "\n".join(lines), facts


def _settings(config: dict[str, Any]) -> list[str]:
    """A configuration in words; what is switched off or not given goes without saying."""
    found: list[str] = []
    for key, value in config.items():
        name = key.replace("_", " ")
        if isinstance(value, dict):
            found += _settings(value)
        elif isinstance(value, list):
            found += [f"{name} {' '.join(map(str, value))}"] if value else []
        elif value is True:
            found.append(name)
        elif value not in (None, False):
            found.append(f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}")
    return found


def print_stage(result: StageResult, *, as_json: bool) -> None:
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(printable(describe(result)))
