"""`clozeline show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clozeline.cli.options import output_options
from clozeline.cli.report import describe_data, print_json
from clozeline.errors import ConfigError

if TYPE_CHECKING:
    from clozeline.store.dataset import Data
    from clozeline.verification.rows import Piece

_STYLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "special": {"dim": True},
    "mask": {"fg": "blue", "bold": True},
    "random": {"fg": "magenta", "bold": True},
    "keep": {"fg": "yellow", "underline": True},
}
LEGEND = "[MASK=word] replaced by the mask token, drawn[RANDOM=word] by a random one, word[KEEP] selected and kept"


@click.command("show", epilog="Example: clozeline show work/masked --rows 2")
@click.argument("data", metavar="DIR")
@click.option("--rows", type=click.IntRange(min=0), help="How many rows to print.  [default: 1 with --row, else none]")
@click.option("--row", type=click.IntRange(min=0), help="The first row to print.  [default: 0]")
@click.option(
    "--copy", "copies", type=click.IntRange(min=0), multiple=True, help="Of which copy; twice for --diff.  [default: 0]"
)
@click.option("--diff", is_flag=True, help="Two copies of each row one under the other.  [default: copies 0 and 1]")
@click.option("--html", metavar="FILE", help="Write the rows as a page that stands on its own.")
@output_options
def command(
    data: str,
    rows: int | None,
    row: int | None,
    copies: tuple[int, ...],
    diff: bool,
    html: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Describe a data set and print some of its rows.

    DIR is what shard, pack or mask wrote. Selected tokens are marked and, on a terminal, coloured.
    """
    from clozeline.store.dataset import Data

    opened = Data(data)
    asked = row is not None or diff or html is not None
    count = rows if rows is not None else int(asked)
    shown = _copies(opened, copies, diff=diff)
    if opened.metadata.stage == "sharding":
        if html:
            raise ConfigError("--html shows token rows; this data set holds text")
        printed = _text_rows(opened, row or 0, count)
    else:
        printed = _token_rows(opened, row or 0, count, shown)
    if html:
        _write_page(Path(html), opened, printed)
    if as_json:
        print_json({**describe_data(opened)[1], "shown": printed})
        return
    click.echo(describe_data(opened)[0])
    if html:
        return
    if opened.metadata.stage == "masking" and printed and not quiet:
        click.echo(f"  {LEGEND}")
    for one in printed:
        click.echo(f"\n{_title(one)}")
        click.echo(one["text"] if "text" in one else _coloured(one["pieces"]))


def _copies(data: Data, copies: tuple[int, ...], *, diff: bool) -> tuple[int, ...]:
    if not diff:
        return copies or (0,)
    there = 1 + max((entry.copy for entry in data.manifest.shards), default=0)
    if data.metadata.stage != "masking" or there < 2:
        raise ConfigError(f"--diff compares two maskings; {data.location} has one")
    if len(copies) not in (0, 2):
        raise ConfigError("--diff compares two copies: give --copy twice, or not at all")
    return copies or (0, 1)


def _title(shown: dict[str, Any]) -> str:
    return f"row {shown['row']}" + (f", copy {shown['copy']}" if "copy" in shown else "")


def _write_page(path: Path, data: Data, printed: list[dict[str, Any]]) -> None:
    from html import escape

    from clozeline.verification.page import LEGEND, page, row_html
    from clozeline.verification.rows import Piece

    shown = [row_html(_title(one), [Piece(**piece) for piece in one["pieces"]]) for one in printed]
    rows = f'<div class="sides">{"".join(shown)}</div>'
    legend = LEGEND if data.metadata.stage == "masking" else ""
    facts = f"<pre>{escape(describe_data(data)[0])}</pre>"
    path.write_text(page(str(data.location), f"<h1>{escape(str(data.location))}</h1>", legend, rows, facts), "utf-8")


def _token_rows(data: Data, first: int, count: int, copies: tuple[int, ...]) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from clozeline.verification.rows import RowDecoder, decode_row

    if not count:
        return []
    decoder = RowDecoder.of(data)
    total = sum(entry.rows for entry in data.manifest.shards if entry.copy == copies[0])
    last = max(min(first + count, total), first + 1)
    masked = data.metadata.stage == "masking"
    return [
        {
            "row": row,
            **({"copy": copy} if masked else {}),
            "pieces": [asdict(p) for p in decode_row(data, decoder, row, copy)],
        }
        for row in range(first, last)
        for copy in copies
    ]


def _text_rows(data: Data, first: int, count: int) -> list[dict[str, Any]]:
    from clozeline.store.documents import TextShard

    found: list[dict[str, Any]] = []
    seen = 0
    for entry in data.manifest.shards:
        if len(found) >= count:
            break
        if seen + entry.rows <= first:
            seen += entry.rows
            continue
        for _, _, stream in TextShard(location=data.location, entry=entry).read():
            for documents in stream:
                for name, text in zip(documents.ids, documents.texts, strict=True):
                    if first <= seen < first + count:
                        found.append({"row": seen, "doc_id": name, "text": text.decode()})
                    seen += 1
    return found


def mark(piece: Piece | dict[str, Any]) -> str:
    """A piece as it is read where there are no colours."""
    p = piece if isinstance(piece, dict) else {"text": piece.text, "original": piece.original, "action": piece.action}
    if p["action"] == "mask":
        return f"[MASK={p['original']}]"
    if p["action"] == "random":
        return f"{p['text']}[RANDOM={p['original']}]"
    return f"{p['text']}[KEEP]" if p["action"] == "keep" else str(p["text"])


def _coloured(pieces: list[dict[str, Any]]) -> str:
    parts = []
    for i, piece in enumerate(pieces):
        parts.append(" " if piece["space"] and i else "")
        parts.append(click.style(mark(piece), **_STYLES[piece["action"]]))
    return "".join(parts)
