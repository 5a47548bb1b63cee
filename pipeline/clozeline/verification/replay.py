"""Masks derived once more from the stored seed, and compared with those on disk.

Shapes: R rows of L positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.mask_function import IGNORE, mask_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clozeline.mask_function import MaskRule, MaskVocabulary
    from clozeline.verification.findings import Findings
    from clozeline.verification.marks import Marks


def unmask(ids: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """The rows before masking: (R, L) of the dtype of `ids`. A label that is no id comes back wrapped; `check_labels` finds it."""
    return np.where(labels == IGNORE, ids, labels.astype(ids.dtype))


def check_labels(
    where: str,
    first_row: int,
    columns: dict[str, NDArray[Any]],
    vocabulary: MaskVocabulary,
    findings: Findings,
) -> None:
    """A label is -100 or an id that may be selected; what stands there is the mask token, the label, or an id that may be drawn.

    Args:
        columns: input_ids, labels, attention_mask: (R, L) each.
    """
    ids, labels = columns["input_ids"], columns["labels"]
    index = np.flatnonzero(labels.reshape(-1) != IGNORE)
    label, there = labels.reshape(-1)[index].astype(np.int64), ids.reshape(-1)[index].astype(np.int64)
    table = vocabulary.maskable

    def report(check: str, bad: NDArray[np.bool_], what: str) -> None:
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            row, position = divmod(int(index[i]), ids.shape[1])
            text = what.format(label=label[i], id=there[i])
            findings.add(check, f"{where}, row {first_row + row}, position {position}: {text}", int(bad.sum()))

    outside = (label < 0) | (label >= len(table))
    report("labels", outside, "label {label} is neither -100 nor an id of the vocabulary")
    known = np.where(outside, 0, label)
    protected = ~outside & ~table[known]
    padding = columns["attention_mask"].reshape(-1)[index] == 0
    report("specials", padding, "padding is selected, with label {label}")
    report(
        "specials", protected & ~padding, "the label is {label}, a special or protected id, which must not be selected"
    )
    may_stand = np.zeros(len(table), bool)
    may_stand[vocabulary.ordinary_ids] = True
    may_stand[vocabulary.mask_id] = True
    allowed = (there >= 0) & (there < len(table)) & may_stand[np.clip(there, 0, len(table) - 1)]
    report("replacements", ~allowed & (there != label), "id {id} stands for label {label}: no id that may be drawn")
    stray = (ids == vocabulary.mask_id) & (labels == IGNORE)
    if stray.any():
        row, position = np.argwhere(stray)[0].tolist()
        findings.add(
            "stray_masks",
            f"{where}, row {first_row + row}, position {position}: the mask token stands where nothing is selected",
            int(stray.sum()),
        )


def check_counts(
    where: str, first_row: int, labels: NDArray[Any], marks: Marks, rule: MaskRule, slack: int, findings: Findings
) -> None:
    """Under an exact scheme every row has its number of selected tokens; under a cap no row has more; words are whole.

    Args:
        labels: (R, L).
        rule: of this copy.
        slack: tokens by which rounding may differ.
    """
    tokens = (labels != IGNORE).sum(axis=1)
    found = marks.found
    if rule.max_predictions is not None:
        over = np.flatnonzero(tokens > rule.max_predictions)
        if len(over):
            findings.add(
                "row_counts",
                f"{where}, row {first_row + over[0]}: {tokens[over[0]]} tokens are selected, {rule.max_predictions} is the most",
                len(over),
            )
    elif rule.selection == "exact":
        wanted = np.array([rule.budget(n) for n in marks.maskable.tolist()], np.int64)
        longest = np.ones(len(labels), np.int64)
        if found is not None:
            np.maximum.at(longest, found.rows, found.tokens)
        off = np.flatnonzero(np.abs(tokens - wanted) >= longest + slack)
        if len(off):
            row = off[0]
            findings.add(
                "row_counts",
                f"{where}, row {first_row + row}: {tokens[row]} tokens are selected, {wanted[row]} of "
                f"{marks.maskable[row]} expected",
                len(off),
            )
    if found is None:
        return
    inside = np.bincount(found.unit, labels.reshape(-1)[found.positions] != IGNORE, minlength=len(found.first))
    torn = np.flatnonzero((inside > 0) & (inside < found.tokens))
    if len(torn):
        position = int(found.first[torn[0]]) % labels.shape[1]
        findings.add(
            "whole_units",
            f"{where}, row {first_row + found.rows[torn[0]]}, position {position}: {int(inside[torn[0]])} of the "
            f"{found.tokens[torn[0]]} tokens of a {rule.unit} are selected",
            len(torn),
        )


def check_replay(
    where: str,
    columns: dict[str, NDArray[Any]],
    original: NDArray[Any],
    rule: MaskRule,
    vocabulary: MaskVocabulary,
    *,
    seed: int,
    copy: int,
    shard: int,
    first_row: int,
    findings: Findings,
) -> None:
    """The masks on disk are, bit for bit, those that the seed gives for the rows that unmasking gives.

    Args:
        columns: input_ids and labels, (R, L) each, and word_starts where there are any.
        original: what `unmask` gives for them.
    """
    ids, labels = columns["input_ids"], columns["labels"]
    rows = np.arange(first_row, first_row + len(ids))
    masked = mask_rows(
        original,
        rule,
        vocabulary,
        seed=seed,
        copy=copy,
        shards=np.full(len(ids), shard),
        rows=rows,
        label_dtype=labels.dtype,
        word_starts=columns.get("word_starts"),
    )
    differs = (masked.ids != ids) | (masked.labels != labels)
    if differs.any():
        row, position = np.argwhere(differs)[0].tolist()
        findings.add(
            "replay",
            f"{where}, row {first_row + row}, position {position}: id {ids[row, position]} with label {labels[row, position]}, "
            f"the seed gives id {masked.ids[row, position]} with label {masked.labels[row, position]}",
            int(differs.any(axis=1).sum()),
        )
