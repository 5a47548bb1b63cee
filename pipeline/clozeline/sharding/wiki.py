"""The output of WikiExtractor: `<doc id="..." url="..." title="...">`, the text, `</doc>`, each tag on a line of its own."""

from __future__ import annotations

_BOM_AND_WHITE = b"\xef\xbb\xbf \t\r\f\v\n"


class NoElementError(ValueError):
    """What stands where a <doc> element is expected."""


def element_text(raw: bytes, *, begins: bool, whole: bool) -> bytes | None:
    """The text of an element; None for white space between elements.

    Args:
        raw: from one line that begins with `<doc ` to the next, or a piece of it where it is long.
        begins: not a later piece.
        whole: not a piece at all.

    Raises:
        NoElementError: text outside of elements, or an element that does not end.
    """
    if begins:
        if not raw.strip(_BOM_AND_WHITE):
            return None
        raw = raw.removeprefix(b"\xef\xbb\xbf")
        if not raw.startswith(b"<doc "):
            raise NoElementError("text outside of a <doc> element")
        end = raw.find(b"\n")
        raw = raw[end + 1 :] if end >= 0 else b""
    text, mark, rest = raw.partition(b"</doc>")
    if whole and not mark:
        raise NoElementError("a <doc> element without its </doc>")
    if rest.strip():
        raise NoElementError("text behind a </doc>")
    return text
