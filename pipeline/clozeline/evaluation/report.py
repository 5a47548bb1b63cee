"""The HTML report: one file, no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clozeline.evaluation.breakdown import Group
    from clozeline.evaluation.compare import Comparison
    from clozeline.evaluation.result import EvaluateResult
    from clozeline.evaluation.worst import ScoredToken, WorstRow

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.bar { display: inline-block; height: .8rem; background: #4477aa; vertical-align: middle; }
.row { font: 13px/1.9 ui-monospace, monospace; overflow-wrap: anywhere; }
.t { padding: .1rem .15rem; border-radius: .2rem; border-bottom: 2px solid currentColor; color: #000; }
small { opacity: .75; }
"""
_TITLES = {
    "action": ("By action", "what stood in the token's place"),
    "position": ("By position", "position in the row"),
    "frequency_decile": ("By frequency", "1: the most frequent tokens, 10: the rarest, each about a tenth of the text"),
    "row_length": ("By length of the row", "tokens that are not padding"),
    "masks_in_row": ("By selected tokens in the row", "how many were selected together"),
    "document_length": ("By length of the document", "tokens of the document in this row"),
}
_WORST_LOSS = 12.0  # nats; the strongest colour


def render(
    title: str, facts: dict[str, str], result: EvaluateResult, comparison: Comparison | None, worst: Sequence[WorstRow]
) -> str:
    """The report as HTML.

    Args:
        facts: lines of the first table, such as data and model.
        worst: rows to show token by token.
    """
    parts = [f"<h1>{html.escape(title)}</h1>", _figures(facts, result, comparison)]
    parts += [_chart(*_TITLES[name], result.by[name]) for name in _TITLES if name in result.by]
    if worst:
        parts.append(
            "<h2>Rows with the highest loss</h2><p><small>Selected tokens are coloured from green (expected) to red "
            "(12 nats and more); point at one for its loss and for what the model saw.</small></p>"
        )
        parts += map(_row, worst)
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _number(value: float | None, digits: int = 4) -> str:
    if value is None:
        return "none"
    return f"{value:,.{digits}f}" if math.isfinite(value) else str(value)


def _range(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" (95 %: {interval[0]:.4f} to {interval[1]:.4f})"


def _figures(facts: dict[str, str], result: EvaluateResult, comparison: Comparison | None) -> str:
    lines = {
        **facts,
        "loss": f"{_number(result.loss)} nats per selected token{_range(result.interval)}",
        "in bits, perplexity": f"{_number(result.loss_bits)}, {_number(result.perplexity, 2)}",
        "accuracy, among first five": f"{_number(result.accuracy)}, {_number(result.top5_accuracy)}",
        "selected tokens, rows": f"{result.selected_tokens:,}, {result.rows:,}",
    }
    if len(result.maskings) > 1:
        each = ", ".join(_number(loss) for loss in result.maskings)
        lines["maskings"] = f"{each} (standard deviation {_number(result.masking_spread)})"
    if result.not_finite_tokens:
        lines["not finite"] = f"{result.not_finite_tokens:,} tokens"
    if comparison is not None:
        lines[f"against {comparison.model}"] = (
            f"{_number(comparison.loss)} nats, difference {_number(comparison.difference)}{_range(comparison.interval)}"
        )
    rows = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in lines.items())
    return f"<table>{rows}</table>"


def _chart(title: str, note: str, groups: Sequence[Group]) -> str:
    finite = [g.loss for g in groups if g.loss is not None and math.isfinite(g.loss)]
    scale = 18.0 / max(finite, default=1.0) if max(finite, default=0.0) > 0 else 0.0
    rows = []
    for group in groups:
        width = group.loss * scale if group.loss is not None and math.isfinite(group.loss) else 0.0
        rows.append(
            f'<tr><td>{html.escape(group.group)}</td><td class="n">{_number(group.loss)}</td>'
            f'<td><span class="bar" style="width:{width:.2f}rem"></span></td>'
            f'<td class="n">{_number(group.accuracy, 3)}</td><td class="n">{group.selected_tokens:,}</td></tr>'
        )
    head = (
        '<tr><th></th><th class="n">loss, nats</th><th></th><th class="n">accuracy</th><th class="n">tokens</th></tr>'
    )
    return f"<h2>{title}</h2><p><small>{note}</small></p><table>{head}{''.join(rows)}</table>"


def _row(row: WorstRow) -> str:
    where = f"masking {row.masking}, shard {row.shard}, row {row.row}: {_number(row.loss)} nats"
    return f'<p><b>{where}</b></p><p class="row">{" ".join(map(_token, row.tokens))}</p>'


def _token(token: ScoredToken) -> str:
    text = html.escape(token.token)
    if token.loss is None:
        return text
    share = min(token.loss / _WORST_LOSS, 1.0) if math.isfinite(token.loss) else 1.0
    hint = html.escape(f"{token.loss:.2f} nats; the model saw {token.seen}", quote=True)
    return f'<span class="t" style="background:hsl({120 * (1 - share):.0f} 70% 75%)" title="{hint}">{text}</span>'
