"""The report of a verification: one HTML file, the verdict first."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from clozeline.verification.figures import figures
from clozeline.verification.page import LEGEND, page, row_html, table

if TYPE_CHECKING:
    from clozeline.mask_function import MaskRule, MaskVocabulary
    from clozeline.store.ledger import Account
    from clozeline.store.manifest import Manifest
    from clozeline.verification.findings import Check, VerifyResult
    from clozeline.verification.rows import Piece
    from clozeline.verification.tally import Tally


def report(
    result: VerifyResult,
    tally: Tally | None,
    rule: MaskRule | None,
    vocabulary: MaskVocabulary | None,
    manifest: Manifest | None,
    rows: list[tuple[str, list[Piece]]],
) -> str:
    """The whole page.

    Args:
        tally, rule, vocabulary: of masked data.
        manifest: of clozeline's own data.
        rows: a few decoded rows, with titles.
    """
    verdict = "good" if result.ok else "bad"
    wrong = [check.name for check in result.checks if not check.ok]
    words = "Every check holds." if result.ok else f"Wrong: {', '.join(wrong)}."
    parts = [
        f"<h1>{escape(result.path)}</h1>",
        f'<p class="verdict {verdict}">{"&#10003;" if result.ok else "&#10007;"} {escape(words)}</p>',
        f'<p class="dim">{result.stage}, {result.rows:,} rows, {result.tokens:,} tokens, {result.bytes:,} bytes'
        + (f", seed {result.seed}" if result.seed is not None else "")
        + "</p>",
    ]
    if result.note:
        parts.append(f"<p>{escape(result.note)}</p>")
    parts += ["<h2>Checks</h2>", table(("", "check", "what was found"), map(_check, result.checks))]
    if tally is not None and rule is not None and vocabulary is not None and tally.units:
        parts += ["<h2>Masks</h2>", '<div class="figures">', *figures(tally, rule, vocabulary, result.checks), "</div>"]
    if manifest is not None:
        parts += ["<h2>From documents to tokens</h2>", _flow(manifest)]
    if rows:
        parts += ["<h2>Rows</h2>", LEGEND, *(row_html(title, pieces) for title, pieces in rows)]
    config: dict[str, Any] = {} if manifest is None else manifest.metadata.config
    if manifest is None and rule is not None:
        config = rule.to_json()
    parts += ["<h2>Configuration</h2>", f"<pre>{escape(json.dumps(config, indent=1))}</pre>"]
    return page(f"clozeline: {result.path}", *parts)


def _check(check: Check) -> tuple[str, str, str]:
    mark = '<span class="good">&#10003; ok</span>' if check.ok else '<span class="bad">&#10007; wrong</span>'
    found = escape(check.detail) + "".join(f'<br><span class="bad">{escape(p)}</span>' for p in check.problems)
    if check.count > len(check.problems):
        found += f'<br><span class="bad">{check.count:,} such in all</span>'
    return mark, escape(check.name), found


def _flow(manifest: Manifest) -> str:
    stages = [*(step["stage"] for step in manifest.metadata.lineage), manifest.metadata.stage]
    boxes = []
    for stage, ledger in zip(stages, [*manifest.history, manifest.ledger], strict=False):
        lines = _account("documents", ledger.documents) + _account("tokens", ledger.tokens)
        unknown = ledger.counts.get("unknown_tokens")
        if unknown is not None and ledger.tokens.taken:
            lines.append(f"[UNK]: {unknown:,} tokens, {unknown / ledger.tokens.taken:.3%}")
        lines += [
            f"{name.replace('_', ' ')}: {n:,}"
            for name, n in sorted(ledger.counts.items())
            if name != "unknown_tokens" and n
        ]
        boxes.append(
            f"<div><strong>{escape(stage)}</strong><ul>"
            + "".join(f"<li>{escape(line)}</li>" for line in lines)
            + "</ul></div>"
        )
    return f'<div class="flow">{"".join(boxes)}</div>'


def _account(unit: str, account: Account) -> list[str]:
    if not account.taken and not account.out:
        return []
    lines = [f"{account.taken:,} {unit} in"]
    lines += [f"+ {n:,} {reason.replace('_', ' ')}" for reason, n in sorted(account.added.items())]
    lines += [f"- {n:,} {reason.replace('_', ' ')}" for reason, n in sorted(account.dropped.items())]
    return [*lines, f"= {account.out:,} {unit} out"]
