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


def unmask(ids: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """The rows before masking: (R, L) of the dtype of `ids`. A label that is no id comes back wrapped; `check_labels` finds it."""
    return np.where(labels == IGNORE, ids, labels.astype(ids.dtype))


def check_labels(
    where: str, first_row: int, ids: NDArray[Any], labels: NDArray[Any], vocabulary: MaskVocabulary, findings: Findings
) -> None:
    """A label is -100 or an id that may be selected; what stands there is the mask token, the label, or an ordinary id."""
    index = np.flatnonzero(labels.reshape(-1) != IGNORE)
    label, there = labels.reshape(-1)[index], ids.reshape(-1)[index].astype(np.int64)
    table = vocabulary.maskable

    def report(bad: NDArray[np.bool_], what: str) -> None:
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            row, position = divmod(int(index[i]), ids.shape[1])
            text = what.format(label=label[i], id=there[i])
            findings.add("labels", f"{where}, row {first_row + row}, position {position}: {text}", int(bad.sum()))

    outside = (label < 0) | (label >= len(table))
    report(outside, "label {label} is neither -100 nor an id of the vocabulary")
    label = np.where(outside, 0, label)
    report(~outside & ~table[label], "the label is the special id {label}, which must not be selected")
    allowed = np.zeros(max(len(table), int(there.max(initial=0)) + 1), bool)
    allowed[vocabulary.ordinary_ids] = True
    allowed[vocabulary.mask_id] = True
    report(~allowed[there] & (there != label), "id {id} stands for label {label}: not an id that a replacement may be")
    stray = (ids == vocabulary.mask_id) & (labels == IGNORE)
    if stray.any():
        row, position = np.argwhere(stray)[0].tolist()
        findings.add(
            "labels",
            f"{where}, row {first_row + row}, position {position}: the mask token stands where nothing is selected",
            int(stray.sum()),
        )


def check_replay(
    where: str,
    columns: dict[str, NDArray[Any]],
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
    """
    ids, labels = columns["input_ids"], columns["labels"]
    rows = np.arange(first_row, first_row + len(ids))
    masked = mask_rows(
        unmask(ids, labels),
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
