"""`clozeline show`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clozeline.cli.options.run import output_options
from clozeline.cli.report import describe_data, print_json, printable
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
_BY_REASON = ("added", "dropped")
LEGEND = "[MASK=word] replaced by the mask token, drawn[RANDOM=word] by a random one, word[KEEP] selected and kept"


@click.command("show", epilog="Example: clozeline show work/masked --rows 2")
@click.argument("data", nargs=-1, required=True, metavar="DIR...")
@click.option("--rows", type=click.IntRange(min=0), help="How many rows to print.  [default: 1 with --row, else none]")
@click.option("--row", type=click.IntRange(min=0), help="The first row to print.  [default: 0]")
@click.option(
    "--copy", "copies", type=click.IntRange(min=0), multiple=True, help="Of which copy; twice for --diff.  [default: 0]"
)
@click.option("--diff", is_flag=True, help="Two copies of each row one under the other.  [default: copies 0 and 1]")
@click.option("--html", metavar="FILE", help="Write the rows as a page that stands on its own.")
@click.option("--where", metavar="DOC_ID", help="Which rows hold a document, for data packed with --provenance.")
@click.option("--packing", is_flag=True, help="How documents lie in rows; several DIRs side by side.")
@output_options
def command(
    data: tuple[str, ...],
    rows: int | None,
    row: int | None,
    copies: tuple[int, ...],
    diff: bool,
    html: str | None,
    where: str | None,
    packing: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Describe a data set and print some of its rows.

    DIR is what shard, pack or mask wrote. Selected tokens are marked and, on a terminal, coloured. Rows of data packed with
    --provenance are followed by the documents they hold.
    """
    from clozeline.store.dataset import Data

    if len(data) > 1 and not packing:
        raise ConfigError("several data sets can only be compared: give --packing, or one DIR")
    opened = [Data(path) for path in data]
    if packing:
        _show_packing(opened, as_json=as_json)
    elif where is not None:
        _show_document(opened[0], where, as_json=as_json)
    else:
        shown = _copies(opened[0], copies, diff=diff)
        asked = row is not None or diff or html is not None or bool(copies)
        count = rows if rows is not None else int(asked)
        _show(opened[0], row or 0, count, shown, html, as_json=as_json, quiet=quiet)


def _show_packing(opened: list[Data], *, as_json: bool) -> None:
    from clozeline.packing.report import packing_report

    reports = [packing_report(data) for data in opened]
    if as_json:
        print_json([report.to_json() for report in reports])
    else:
        click.echo(compare_packing([report.to_json() for report in reports]))


def compare_packing(reports: list[dict[str, Any]]) -> str:
    """Packing reports as a table, a column for each."""
    lines = {name: [_figure(name, report[name]) for report in reports] for name in reports[0] if name not in _BY_REASON}
    for kind in _BY_REASON:
        for reason in sorted({reason for report in reports for reason in report[kind]}):
            lines[f"{kind}: {reason}"] = [f"{report[kind].get(reason, 0):,}" for report in reports]
    names = [name.replace("_", " ") for name in lines]
    first = max(map(len, names))
    widths = [max(len(line[i]) for line in lines.values()) for i in range(len(reports))]
    return "\n".join(
        f"{name:<{first}}  " + "  ".join(f"{text:>{width}}" for text, width in zip(line, widths, strict=True))
        for name, line in zip(names, lines.values(), strict=True)
    )


def _figure(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if name == "documents_per_row" else f"{value:.2%}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _show_document(data: Data, doc_id: str, *, as_json: bool) -> None:
    from dataclasses import asdict

    from clozeline.packing.provenance import find_document

    found = find_document(data, doc_id)
    if as_json:
        print_json({"doc_id": doc_id, "found": [asdict(stretch) for stretch in found]})
        return
    if not found:
        click.echo(printable(f"{data.location}: no row holds {doc_id}"))
        return
    click.echo(f"{data.location}: {printable(doc_id)} stands in {len({s.row for s in found})} rows")
    for s in found:
        click.echo(
            f"  row {s.row} (shard {s.shard}, row {s.shard_row}), positions {s.start} to {s.start + s.tokens - 1}: its tokens "
            f"{s.first_token} to {s.first_token + s.tokens - 1} of {s.document_tokens}"
        )


def _show(
    data: Data, row: int, rows: int, copies: tuple[int, ...], html: str | None, *, as_json: bool, quiet: bool
) -> None:
    if data.metadata.stage == "sharding":
        if html:
            raise ConfigError("--html shows token rows; this data set holds text")
        printed = _text_rows(data, row, rows)
    else:
        printed = _token_rows(data, row, rows, copies)
    if html:
        _write_page(Path(html), data, printed)
    if as_json:
        print_json({**describe_data(data)[1], "shown": printed})
        return
    click.echo(printable(describe_data(data)[0]))
    if html:
        return
    if data.metadata.stage == "masking" and printed and not quiet:
        click.echo(f"  {LEGEND}")
    for shown in printed:
        click.echo(f"\n{_title(shown)}")
        click.echo(printable(shown["text"]) if "text" in shown else _coloured(shown["pieces"]))
        for s in shown.get("sources", ()):
            until = s["start"] + s["tokens"] - 1
            click.echo(
                f"  positions {s['start']} to {until}: {printable(s['doc_id'])}, its tokens {s['first_token']} to "
                f"{s['first_token'] + s['tokens'] - 1} of {s['document_tokens']}"
            )


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

    from clozeline.packing.provenance import find_sources
    from clozeline.verification.rows import RowDecoder, decode_row

    if not count:
        return []
    decoder = RowDecoder.of(data)
    total = sum(entry.rows for entry in data.manifest.shards if entry.copy == copies[0])
    last = max(min(first + count, total), first + 1)
    masked = data.metadata.stage == "masking"
    shown: list[dict[str, Any]] = []
    for row, copy in itertools.product(range(first, last), copies):
        pieces = [asdict(p) for p in decode_row(data, decoder, row, copy)]
        shown.append({"row": row, **({"copy": copy} if masked else {}), "pieces": pieces})
        if data.metadata.config.get("provenance"):
            shown[-1]["sources"] = [asdict(s) for s in find_sources(data, row)]
    return shown


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
        parts.append(click.style(printable(mark(piece)), **_STYLES[piece["action"]]))
    return "".join(parts)
