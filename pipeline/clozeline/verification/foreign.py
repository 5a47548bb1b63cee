"""`verify_foreign`: masked rows that another tool wrote, with no manifest and no seed.

Everything is checked but the replay. What other tools call their columns is translated here; see `docs/verify.md`.

Shapes: R rows of L positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import ConfigError, DataError
from clozeline.mask_function import MaskRule
from clozeline.run.stage import RunOptions
from clozeline.store.masks import mask_vocabulary
from clozeline.verification.findings import Findings, VerifyResult
from clozeline.verification.foreign_rows import ForeignReader, foreign_files, measure, read_batches
from clozeline.verification.jobs import label_checks, run_jobs
from clozeline.verification.marks import Marks
from clozeline.verification.replay import check_counts, check_labels, unmask
from clozeline.verification.report import report
from clozeline.verification.sketch import WINDOW, Sketch
from clozeline.verification.statistics import judge, needed_bits
from clozeline.verification.tally import Tally

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from clozeline.mask_function import MaskVocabulary
    from clozeline.store.manifest import TokenizerFacts

    Columns = dict[str, NDArray[Any]]

SLACK = 2  # tokens by which an exact count may differ: tools round, and count special tokens, in their own ways
_INFERRED = 0.5  # rows whose counts vary less than half as much as independent draws have an exact number


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignJob:
    """Reads one file and checks what can be known from it alone."""

    path: Path
    index: int
    reader: ForeignReader
    rule: MaskRule
    needed: float

    @property
    def bytes(self) -> int:
        return self.path.stat().st_size

    @property
    def vocabulary(self) -> MaskVocabulary:
        return mask_vocabulary(self.reader.facts, self.rule)

    def __call__(self) -> tuple[Findings, Tally]:
        findings, vocabulary, rule = Findings(), self.vocabulary, self.rule
        tally = Tally(Sketch(self.needed), self.reader.row_length, len(vocabulary.maskable))
        row = 0
        for batch in read_batches(self.path):
            try:
                columns = self.reader.columns(batch)
            except DataError as error:
                raise DataError(f"{self.path}, rows from {row}: {error}") from error
            ids, labels, where = columns["input_ids"], columns["labels"], str(self.path)
            check_labels(where, row, columns, vocabulary, findings)
            self._check_rows(columns, row, findings)
            original = np.clip(unmask(ids, labels), 0, len(vocabulary.maskable) - 1)
            exact = rule.selection == "exact"
            marks = Marks(original, labels, rule, vocabulary, columns.get("word_starts"), None, own_share=exact)
            check_counts(where, row, labels, marks, rule, SLACK, findings)
            tally.see(ids, labels, original, marks, rule, vocabulary)
            tally.see_shape(original, columns["attention_mask"], vocabulary)
            tally.sketch.see(marks.selected, marks.units, 0, self.index, row)
            row += len(ids)
        return findings, tally

    def _check_rows(self, columns: Columns, first_row: int, findings: Findings) -> None:
        """Ids exist; attention is 0 or 1; padding is padding."""
        ids, attention, facts = columns["input_ids"], columns["attention_mask"], self.reader.facts
        bad = (ids < 0) | (ids >= facts.vocabulary_size)
        overwritten = (attention == 0) & (ids != facts.pad_id)
        other = (attention != 0) & (attention != 1)
        for values, wrong, what in (
            (ids, bad, "is no id of the vocabulary"),
            (ids, overwritten, "stands in the padding"),
            (attention, other, "is the attention, which is 0 or 1"),
        ):
            if wrong.any():
                row, position = np.argwhere(wrong)[0].tolist()
                findings.add(
                    "rows",
                    f"{self.path}, row {first_row + row}, position {position}: {values[row, position]} {what}",
                    int(wrong.sum()),
                )


def verify_foreign(
    path: str | os.PathLike[str],
    facts: TokenizerFacts,
    rule: MaskRule | None = None,
    *,
    vocabulary: dict[str, int] | None = None,
    html: str | os.PathLike[str] | None = None,
    run: RunOptions | None = None,
) -> VerifyResult:
    """Checks masked rows that another tool wrote.

    Args:
        path: an Arrow or Parquet file, or a folder of them. Columns: `input_ids` and `labels`; or `input_ids` with
            `masked_lm_positions` and `masked_lm_ids` (Google's BERT); or `A`, `B`, `masked_lm_positions` and `masked_lm_labels`
            (LDDL).
        facts: of the tokenizer: `clozeline.load_tokenizer(...).facts`.
        rule: the scheme that is expected. None: 15 % of tokens, 80/10/10; selected one by one or by an exact number a row,
            whichever the variance between rows says.
        vocabulary: token to id, where columns hold tokens as text.
        html: a file to write a report to, which stands on its own.

    Raises:
        DataError: no such data, or columns that are not there.
        ConfigError: a scheme that cannot be told from rows alone.
    """
    run = run or RunOptions()
    expected = rule or MaskRule()
    if expected.unit == "span":
        raise ConfigError(
            "where spans began cannot be told from foreign rows; spans are verified in clozeline's own data"
        )
    if expected.replacement != "uniform" or len(expected.schedule) > 1:
        raise ConfigError("foreign data is verified for one masking rate and uniform replacements")
    files = foreign_files(path)
    length, rows = measure(files)
    reader = ForeignReader(facts=facts, row_length=length, vocabulary=vocabulary)
    needed = needed_bits(rows * (-(-length // WINDOW)))

    def look(rule: MaskRule) -> tuple[Findings, Tally, MaskVocabulary]:
        jobs = [ForeignJob(path=file, index=i, reader=reader, rule=rule, needed=needed) for i, file in enumerate(files)]
        findings = Findings()
        total = run_jobs(jobs, findings, run)
        assert total is not None
        return findings, total, jobs[0].vocabulary

    findings, tally, known = look(expected)
    inferred = ""
    if rule is None:
        ratio = tally.squares / tally.square_count if tally.square_count else 1.0
        if ratio < _INFERRED:
            expected = replace(expected, selection="exact")
            findings, tally, known = look(expected)
        inferred = (
            f"assumed: 15 % of tokens, 80/10/10; {expected.selection}, since counts of rows vary {ratio:.3f} times as "
            "much as independent draws"
        )
    checks = [findings.check("rows", "ids exist, padding is padding"), *label_checks(findings, expected)]
    checks += judge(tally, expected, known, slack=SLACK)
    result = VerifyResult(
        path=str(path),
        stage="foreign",
        ok=all(check.ok for check in checks),
        rows=tally.rows,
        tokens=tally.maskable,
        bytes=sum(file.stat().st_size for file in files),
        seed=None,
        checks=tuple(checks),
        note=inferred,
    )
    if html is not None:
        Path(html).write_text(report(result, tally, expected, known, None, []), "utf-8")
    return result
