"""The text of one line of JSONL."""

from __future__ import annotations

import json

ESCAPES = 6  # "\\u0041" for "A": how much longer a JSON string may be than its text


class NoTextError(Exception):
    """A line that is no document: the reason for the ledger, and what was found."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(what)
        self.reason, self.what = reason, what


def json_text(raw: bytes, field: str, *, replace: bool) -> tuple[bytes, bool]:
    """The value of `field` as UTF-8, and whether anything in it was replaced.

    Args:
        raw: one line, without a byte order mark.
        replace: put U+FFFD for what is no character; else it is an error.

    Raises:
        NoTextError: no JSON object, or no text in that field.
    """
    replaced = False
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        if not replace:
            raise NoTextError("invalid_utf8", f"not UTF-8 (byte 0x{raw[error.start]:02x})") from error
        line, replaced = raw.decode(errors="replace"), True
    try:
        value = json.loads(line, parse_int=float)  # the numbers are not needed, and may have any number of digits
    except (ValueError, RecursionError) as error:
        raise NoTextError("not_json", f"not JSON ({error})") from error
    if not isinstance(value, dict):
        raise NoTextError("not_an_object", f"{_kind(value)} where an object is expected")
    if field not in value:
        keys = ", ".join(map(repr, list(value)[:5])) or "none"
        raise NoTextError("no_text", f"no key {field!r} (it has {keys})")
    text = value[field]
    if not isinstance(text, str):
        raise NoTextError("no_text", f"{field!r} is {_kind(text)}, not text")
    try:
        return text.encode(), replaced
    except UnicodeEncodeError as error:
        if not replace:
            what = "an unpaired surrogate (\\ud800 to \\udfff), which is no character"
            raise NoTextError("invalid_unicode", what) from error
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode(), True


def _kind(value: object) -> str:
    kinds = {type(None): "null", bool: "a boolean", float: "a number", list: "an array", dict: "an object"}
    return kinds.get(type(value), "a string")
