"""Self-contained HTML pages: no script, no network; readable on a phone, in the dark, in print, and without colour."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clozeline.verification.rows import Piece

# Colours of Okabe and Ito (2008, "Color Universal Design"), told apart with any colour vision; and never colour alone.
_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --soft: #f2f2f2; --line: #c8c8c8; --dim: #5c5c5c;
  --mask: #0072b2; --random: #b35900; --keep: #00724f; --bad: #b3261e; --good: #00724f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181c; --soft: #23262c; --line: #4a4f58;
  --dim: #a6abb3; --mask: #6cb8ee; --random: #f2a65a; --keep: #4fd1a5; --bad: #ff8a80; --good: #4fd1a5; } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.3rem; margin: .5rem 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem } p { margin: .4rem 0 }
.verdict { border: .15rem solid; border-radius: .5rem; padding: .6rem 1rem; font-size: 1.15rem; font-weight: 600 }
.good { color: var(--good) } .bad { color: var(--bad) } .dim { color: var(--dim) }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .25rem .5rem; border-bottom: 1px solid var(--line) }
td:nth-child(-n+2) { white-space: nowrap }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1rem }
figure { margin: 0; background: var(--soft); border-radius: .5rem; padding: .6rem } figcaption { font-size: .9rem }
figure svg { width: 100%; height: auto; display: block }
.flow { display: flex; flex-wrap: wrap; gap: .5rem; align-items: stretch }
.flow > div { flex: 1 1 12rem; background: var(--soft); border-radius: .5rem; padding: .6rem }
.flow > div + div::before { content: "→ "; color: var(--dim) }
.flow ul { margin: .2rem 0; padding-left: 1.1rem; font-size: .9rem }
.row { background: var(--soft); border-radius: .5rem; padding: .6rem; font-size: .95rem; line-height: 1.9 }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem }
.special { color: var(--dim); font-size: .8em }
.mask, .random, .keep { border-radius: .25rem; padding: 0 .2rem; font-weight: 600 }
.mask { color: var(--mask); border: 2px solid } .random { color: var(--random); border: 2px dashed }
.keep { color: var(--keep); text-decoration: underline double }
.mask small, .random small { font-weight: 400; opacity: .85 }
pre { white-space: pre-wrap; background: var(--soft); padding: .6rem; border-radius: .5rem; font-size: .8rem }
@media print { body { max-width: none; padding: 0 } figure, .row, .flow > div { border: 1px solid var(--line); break-inside: avoid }
  .mask, .random, .keep { print-color-adjust: exact } }
"""

LEGEND = (
    '<p>Selected tokens: <span class="mask">[MASK] <small>word</small></span> replaced by the mask token, '
    '<span class="random">drawn <small>word</small></span> replaced by a random one, '
    '<span class="keep">word</span> kept. Small: what is to be predicted.</p>'
)


def page(title: str, *parts: str) -> str:
    """A whole document."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n'
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>'


def row_html(title: str, pieces: list[Piece]) -> str:
    """A decoded row, its selected tokens marked."""
    parts = []
    for i, piece in enumerate(pieces):
        parts.append(" " if piece.space and i else "")
        text, original = escape(piece.text), escape(piece.original)
        if piece.action == "plain":
            parts.append(text)
        elif piece.action in ("mask", "random"):
            hint = f"{piece.action}: {original} is to be predicted"
            parts.append(f'<span class="{piece.action}" title="{hint}">{text} <small>{original}</small></span>')
        else:
            parts.append(f'<span class="{piece.action}">{text}</span>')
    return f'<div><p class="dim">{escape(title)}</p><div class="row" dir="auto">{"".join(parts)}</div></div>'
