"""Turns input files into documents: decoding, JSON, CSV, and what becomes of a record that is no document."""

from __future__ import annotations

import codecs
import csv
import re
from typing import TYPE_CHECKING, Any, BinaryIO

from clozeline.errors import InputError
from clozeline.sharding.compression import DAMAGE
from clozeline.sharding.json_lines import ESCAPES, NoTextError, json_text
from clozeline.sharding.records import (
    EndlessWhiteSpaceError,
    Records,
    cut_pieces,
    line_records,
    paragraph_records,
    range_records,
    whole_record,
    wiki_records,
)
from clozeline.sharding.tables import table_texts
from clozeline.sharding.warc import WarcError, warc_records
from clozeline.sharding.wiki import NoElementError, element_text
from clozeline.store.documents import Documents, is_utf8
from clozeline.store.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clozeline.sharding.files import InputFile
    from clozeline.sharding.options import ReadOptions

_CUTS = {"lines": line_records, "blank-lines": paragraph_records, "files": whole_record, "wiki": wiki_records}
_BOM = codecs.BOM_UTF8
_LINE_START_BOM = re.compile(rb"^\xef\xbb\xbf", re.MULTILINE)


class FileReader:
    """The documents of one file, range after range.

    Ranges of a file that cannot be entered in the middle must be asked for in order; the stream stays open in between.
    """

    def __init__(self, file: InputFile, options: ReadOptions) -> None:
        self.file, self.options = file, options
        self._stream: Iterator[Records] | None = None
        self._rest: Records | None = None
        self._ledger = Ledger()
        self._mode = options.mode(file.name) if file.format == "text" else "lines"
        self._cut = _CUTS[self._mode]
        decoders = {"text": self._wiki if self._mode == "wiki" else self._text, "warc": self._text, "jsonl": self._json}
        self._decode = decoders.get(file.format, self._values)

    def documents(self, start: int, stop: int, ledger: Ledger) -> Iterator[Documents]:
        """The documents that start in bytes [start, stop) of the file.

        Raises:
            InputError: a damaged file, or a record that is no document where `errors` is "strict".
        """
        self._ledger = ledger
        if self.file.encoding and not start:
            ledger.counts[f"files_in_{self.file.encoding}"] += 1
        try:
            for records in self._records(start, stop):
                documents = self._decode(records, ledger)
                if documents.ids:
                    yield documents
        except WarcError as error:
            raise InputError(f"{self.file.path}: {error}; fetch it again") from error
        except EndlessWhiteSpaceError as error:
            raise InputError(f"{self.file.path}: {error}; is this text? Raise --max-document-bytes if so") from error
        except DAMAGE as error:
            if isinstance(error, OSError) and error.errno:
                raise  # a fault of the machine, not of the file
            raise InputError(f"{self.file.path}: damaged or cut short ({error}); fetch it again") from error

    # Records

    def _records(self, start: int, stop: int) -> Iterator[Any]:
        file = self.file
        if file.format in ("parquet", "arrow", "hf"):
            if not file.rows:
                return
            first, last = (
                -(-edge * file.rows // file.bytes) for edge in (start, stop)
            )  # row i starts at i * bytes // rows
            for row, values in table_texts(file, first, last, self.options.text_field):
                numbers = list(range(row, row + len(values)))
                yield Records(numbers, numbers, values)  # type: ignore[arg-type]
        elif self._mode == "files":
            if start == 0 < stop:
                with file.open() as stream:
                    yield from whole_record(stream.read, 0, self._limit)
        elif file.seekable:
            with file.open() as stream:
                yield from range_records(stream, start, stop, self._limit, self._cut)
        else:
            yield from self._in_order(start, stop)

    @property
    def _limit(self) -> int:
        limit = self.options.max_document_bytes
        return limit * ESCAPES if self.file.format == "jsonl" else limit

    def _in_order(self, start: int, stop: int) -> Iterator[Records]:
        if self._stream is None:
            self._stream = self._open()
        while True:
            records = self._rest or next(self._stream, None)
            self._rest = None
            if records is None:
                return
            mine = records.clip(start, stop)
            if records.starts[-1] >= stop:
                self._rest = records.clip(stop, self.file.bytes)
            if mine.raws:
                yield mine
            if self._rest is not None:
                return

    def _open(self) -> Iterator[Records]:
        if not self.file.bytes:
            return
        with self.file.open() as stream:
            if self.file.format == "csv":
                yield from self._csv(stream)
            elif self.file.format == "warc":
                yield from warc_records(stream, self._limit, self._count_other)
            else:
                yield from self._cut(stream.read, 0, self._limit)

    def _count_other(self) -> None:
        self._ledger.counts["warc_records_without_text"] += 1

    def _csv(self, stream: BinaryIO) -> Iterator[Records]:
        """Rows by `csv` (quotes may span lines); a row starts where the rows before it end."""
        position = 0

        def lines() -> Iterator[str]:
            nonlocal position
            while line := stream.readline(self._limit + 1):
                start, position = position, position + len(line)
                if len(line) > self._limit:
                    raise self._bad(start, f"a line longer than {self._limit:,} bytes", "raise --max-document-bytes")
                # Bytes that are not UTF-8 pass as lone surrogates, and become bytes again with the value.
                yield line.removeprefix(_BOM if start == 0 else b"").decode(errors="surrogateescape")

        csv.field_size_limit(self._limit)
        delimiter = "\t" if ".tsv" in self.file.name.lower() else ","
        rows = csv.reader(lines(), delimiter=delimiter, strict=True)
        field = self.options.text_field
        try:
            header = next(rows, [])
            if field not in header:
                columns = ", ".join(header) or "no columns"
                raise InputError(
                    f"{self.file.path}: has no column {field!r}; it has {columns}: choose one with --text-field"
                )
            column, start = header.index(field), position
            for row in rows:
                value = row[column].encode(errors="surrogateescape") if len(row) > column else None if row else b""
                yield Records([start], [start], [value])  # type: ignore[list-item]
                start = position
        except csv.Error as error:
            raise self._bad(position, f"not a CSV row ({error})", "mend the quotes") from error

    # From records to documents

    def _text(self, records: Records, ledger: Ledger) -> Documents:
        raws: list[bytes] = records.raws
        joined = b"\n".join(raws)
        if b"\r" in joined:
            raws = [raw.replace(b"\r\n", b"\n").removesuffix(b"\r") for raw in raws]
        if _BOM[:1] in joined and _BOM in joined:  # one byte is looked for 20 times faster than three
            cleaned = [_LINE_START_BOM.sub(b"", raw) for raw in raws]
            ledger.counts["documents_with_byte_order_mark"] += sum(a != b for a, b in zip(raws, cleaned, strict=True))
            raws = cleaned
        if not is_utf8(joined):
            valid = [self._valid(offset, raw, ledger) for offset, raw in zip(records.offsets, raws, strict=True)]
            return self._documents(records, valid, ledger)
        return self._documents(records, raws, ledger)

    def _wiki(self, records: Records, ledger: Ledger) -> Documents:
        good, bad = Records([], [], []), Records([], [], [])
        for start, offset, raw in zip(records.starts, records.offsets, records.raws, strict=True):
            try:
                text = element_text(raw, begins=start == offset, whole=start == offset and len(raw) * 2 < self._limit)
            except NoElementError as error:
                if self.options.errors == "strict":
                    raise self._bad(offset, str(error), "see --documents, or use --errors skip") from error
                ledger.documents.dropped["no_doc_element"] += 1
                bad.append(start, offset, b"")
            else:
                if text is not None:
                    good.append(start, offset, text)
        self._documents(bad, [None] * len(bad.raws), ledger)
        return self._text(good, ledger)

    def _valid(self, offset: int, raw: bytes, ledger: Ledger) -> bytes | None:
        """The bytes if they are UTF-8; else what `errors` says, None for a document to drop."""
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            if self.options.errors == "strict":
                byte = f" (byte 0x{raw[error.start]:02x})"
                what = f"not valid {self.file.encoding}" if self.file.encoding else f"not UTF-8{byte}"
                within = (
                    error.start if self.file.format == "text" else 0
                )  # in other formats this is no byte of the file
                raise self._bad(offset + within, what, _ENCODING) from error
            if self.options.errors == "skip":
                ledger.documents.dropped["invalid_utf8"] += 1
                return None
            ledger.counts["documents_with_replaced_bytes"] += 1
            return raw.decode(errors="replace").encode()
        return raw

    def _json(self, records: Records, ledger: Ledger) -> Documents:
        field = self.options.text_field
        values: list[bytes | None] = []
        for offset, raw in zip(records.offsets, records.raws, strict=True):
            if not raw or raw.isspace():
                values.append(b"")
                continue
            try:
                text, replaced = json_text(raw.removeprefix(_BOM), field, replace=self.options.errors == "replace")
                ledger.counts["documents_with_replaced_bytes"] += replaced
                values.append(text)
            except NoTextError as found:
                error = found
                if error.reason == "not_json" and len(raw) * 2 > self._limit:  # a piece of a line that was cut
                    limit = f"{self._limit:,} bytes, {ESCAPES} times --max-document-bytes"
                    error = NoTextError("line_too_long", f"a line longer than {limit}")
                if self.options.errors == "strict":
                    advice = "mend the line, name another key with --text-field, or --errors skip"
                    raise self._bad(offset, error.what, advice) from found
                ledger.documents.dropped[error.reason] += 1
                values.append(None)
        return self._documents(records, values, ledger)

    def _values(self, records: Records, ledger: Ledger) -> Documents:
        values: list[bytes | None] = []
        for offset, value in zip(records.offsets, records.raws, strict=True):
            if value is not None:
                values.append(self._valid(offset, value, ledger))
                continue
            if self.options.errors == "strict":
                field = self.options.text_field
                raise self._bad(offset, f"no text in {field!r}", "fill it in, or --errors skip")
            ledger.documents.dropped["no_text"] += 1
            values.append(None)
        return self._documents(records, values, ledger)

    def _documents(self, records: Records, values: list[Any], ledger: Ledger) -> Documents:
        """Drops what is blank, cuts what is too long, and keeps the account; None stands for what is dropped already."""
        account, limit, name = ledger.documents, self.options.max_document_bytes, self.file.name
        ids: list[str] = []
        texts: list[bytes] = []
        blank = 0
        for offset, value in zip(records.offsets, values, strict=True):
            if value is None:
                continue
            if not value or value.isspace():
                blank += 1
            elif len(value) <= limit:
                ids.append(f"{name}:{offset}")
                texts.append(value)
            else:
                pieces, rest = cut_pieces(value, limit)
                account.added["pieces_of_long_documents"] += len(pieces)
                within = 0
                for piece in (*pieces, rest):
                    if piece.isspace():
                        blank += 1
                    else:
                        ids.append(f"{name}:{offset}+{within}" if within else f"{name}:{offset}")
                        texts.append(piece)
                    within += len(piece)
        continued = sum(a != b for a, b in zip(records.starts, records.offsets, strict=True))
        account.taken += len(values) - continued
        if continued:
            account.added["pieces_of_long_documents"] += continued
        if blank:
            account.dropped["blank"] += blank
        account.out += len(texts)
        return Documents(ids, texts)

    def _bad(self, offset: int, what: str, advice: str) -> InputError:
        """An error that names the line, where that can be found out, or the row."""
        if self.file.rows:
            return InputError(f"{self.file.path}: row {offset:,}: {what}; {advice}")
        line = ""
        if self.file.compression is None:
            with self.file.open() as stream:
                number, left = 1, offset
                while left and (block := stream.read(min(left, 1 << 20))):
                    number += block.count(b"\n")
                    left -= len(block)
            line = f"line {number:,}, "
        return InputError(f"{self.file.path}: {line}byte {offset:,}: {what}; {advice}")


_ENCODING = "convert the file to UTF-8, or use --errors replace or --errors skip"
