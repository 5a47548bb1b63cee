"""Packing by concatenation: documents end to end with a separator between them, cut every C tokens.

The FULL-SENTENCES scheme of RoBERTa (Liu et al. 2019, section 4.2) without its sentence boundaries: rows are dense and may cross
documents. Linear in time; memory is a block of rows and the longest document.

Shapes: T tokens of D documents; R rows of L positions, C = L - template positions of them for content.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.store.schema import id_dtype, rows_per_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from clozeline.store.manifest import TokenizerFacts

    Columns = dict[str, NDArray[Any]]


class ConcatPacker:
    """Turns documents into blocks of rows; all blocks but the last have `rows_per_batch(L)` rows.

    Attributes:
        added: tokens put in, by reason.
        padding: positions filled up in the last row.
    """

    def __init__(self, facts: TokenizerFacts, row_length: int) -> None:
        self._facts = facts
        self._length = row_length
        self._content = row_length - len(facts.prefix_ids) - len(facts.suffix_ids)
        self._block = rows_per_batch(row_length)
        self._dtype = id_dtype(facts.vocabulary_size)
        self._held: list[NDArray[Any]] = []
        self._held_tokens = 0
        self._begun = False
        self.added: Counter[str] = Counter()
        self.padding = 0

    def add(self, ids: NDArray[np.uint32], lengths: NDArray[np.int64]) -> Iterator[Columns]:
        """Takes documents, gives the blocks that are full.

        Args:
            ids: (T,), the documents' tokens one after another.
            lengths: (D,), tokens of each document; none is 0.
        """
        if not len(lengths):
            return
        # Each document but the first of all has a separator before it:
        # lengths [3, 2] after others -> [S a a a S b b]: separators at 0 and 3 + 1
        starts = np.concatenate(([0], np.cumsum(lengths)[:-1])) + np.arange(len(lengths))
        tokens = np.empty(len(ids) + len(lengths), self._dtype)
        is_text = np.ones(len(tokens), bool)
        is_text[starts] = False
        tokens[starts] = self._facts.separator_id
        tokens[is_text] = ids
        if not self._begun:
            tokens = tokens[1:]
        self.added["separators"] += len(lengths) - (not self._begun)
        self._begun = True
        self._held.append(tokens)
        self._held_tokens += len(tokens)
        need = self._block * self._content
        if self._held_tokens < need:
            return
        stream = np.concatenate(self._held)
        cut = len(stream) // need * need
        for first in range(0, cut, need):
            yield self._rows(stream[first : first + need])
        self._held = [stream[cut:]]
        self._held_tokens = len(stream) - cut

    def finish(self) -> Iterator[Columns]:
        """The rest, its last row padded."""
        stream = np.concatenate(self._held) if self._held else np.empty(0, self._dtype)
        if len(stream):
            yield self._rows(stream)
        self._held, self._held_tokens = [], 0

    def _rows(self, stream: NDArray[Any]) -> Columns:
        content, length, facts = self._content, self._length, self._facts
        prefix, suffix = len(facts.prefix_ids), len(facts.suffix_ids)
        full, rest = divmod(len(stream), content)
        rows = full + (rest > 0)
        ids = np.full((rows, length), facts.pad_id, self._dtype)
        mask = np.ones((rows, length), np.uint8)
        num_tokens = np.full(rows, length, np.uint16)
        ids[:, :prefix] = facts.prefix_ids
        ids[:full, prefix : prefix + content] = stream[: full * content].reshape(full, content)
        ids[:full, prefix + content :] = facts.suffix_ids
        if rest:
            ids[full, prefix : prefix + rest] = stream[full * content :]
            ids[full, prefix + rest : prefix + rest + suffix] = facts.suffix_ids
            num_tokens[full] = prefix + rest + suffix
            mask[full, prefix + rest + suffix :] = 0
            self.padding += length - (prefix + rest + suffix)
        self.added["template"] += rows * (prefix + suffix)
        return {"input_ids": ids, "attention_mask": mask, "num_tokens": num_tokens}
