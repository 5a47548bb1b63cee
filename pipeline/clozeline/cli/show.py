"""`clozeline show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from clozeline.cli.options import output_options
from clozeline.cli.report import describe_data, print_json

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
@click.option("--rows", type=click.IntRange(min=0), default=0, show_default=True, help="How many rows to print.")
@click.option("--row", type=click.IntRange(min=0), default=0, show_default=True, help="The first row to print.")
@click.option("--copy", type=click.IntRange(min=0), default=0, show_default=True, help="Of which copy.")
@output_options
def command(data: str, rows: int, row: int, copy: int, as_json: bool, quiet: bool, verbose: bool) -> None:
    """Describe a data set and print some of its rows.

    DIR is what shard, pack or mask wrote. Selected tokens are marked and, on a terminal, coloured.
    """
    from clozeline.store.dataset import Data

    opened = Data(data)
    printed = (
        _text_rows(opened, row, rows) if opened.metadata.stage == "sharding" else _token_rows(opened, row, rows, copy)
    )
    if as_json:
        print_json({**describe_data(opened)[1], "shown": printed})
        return
    click.echo(describe_data(opened)[0])
    marks = opened.metadata.stage == "masking" and rows
    if marks and not quiet:
        click.echo(f"  {LEGEND}")
    for number, shown in enumerate(printed, row):
        click.echo(f"\nrow {number}" + (f", copy {copy}" if marks else ""))
        click.echo(shown["text"] if "text" in shown else _coloured(shown["pieces"]))


def _token_rows(data: Data, first: int, count: int, copy: int) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from clozeline.verification.rows import RowDecoder, decode_row

    if not count:
        return []
    decoder = RowDecoder.of(data)
    total = sum(entry.rows for entry in data.manifest.shards if entry.copy == copy)
    last = max(min(first + count, total), first + 1)
    return [{"pieces": [asdict(p) for p in decode_row(data, decoder, row, copy)]} for row in range(first, last)]


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
                        found.append({"doc_id": name, "text": text.decode()})
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
