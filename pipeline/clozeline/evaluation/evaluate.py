"""`evaluate`: batches and a model in, the masked-token loss out.

The masked-LM loss (Devlin et al. 2019, section 3.1): L = -(1 / |M|) * sum over i in M of log P(w_i | masked row), M being all
selected positions of all rows. It is one mean over tokens, not a mean of batch means, so it does not depend on the batches.

Shapes: B rows of L positions, N selected positions in them.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clozeline.errors import ConfigError, DataError
from clozeline.evaluation.device import find_dtype
from clozeline.evaluation.ranks import gather, process_count
from clozeline.evaluation.result import EvaluateResult, summarise
from clozeline.evaluation.scorer import Scorer
from clozeline.evaluation.totals import Selected, Totals
from clozeline.mask_function import IGNORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray
    from torch import nn

    from clozeline.evaluation.checkpoint import Checkpoint
    from clozeline.evaluation.scorer import Pending
    from clozeline.store.manifest import TokenizerFacts

_IN_FLIGHT = 2  # batches launched but not read back: the host prepares one while the device computes the other


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateProgress:
    """How far this process is.

    Attributes:
        rows: scored so far.
        loss: over them, nats; None before the first selected token.
        rows_per_second: of this run.
    """

    rows: int
    loss: float | None
    rows_per_second: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateOptions:
    """How a model is evaluated.

    Attributes:
        dtype: of the matrix products: "float32", "bf16", "fp16" (autocast; the softmax is float32 always), or "auto": bf16 on a
            GPU that has it, else float32.
        pseudo_likelihood: mask every token of the text in turn, one forward pass each, instead of using labels.
        batch_rows: rows at once on the device; None for as many as come together (pseudo-likelihood: as fit by a rule of thumb).
            Halved as often as memory asks for it.
        compile: pass the encoder through `torch.compile`.
    """

    dtype: str = "float32"
    batch_rows: int | None = None
    pseudo_likelihood: bool = False
    compile: bool = False


def evaluate(
    model: nn.Module,
    batches: Iterable[dict[str, Any]],
    options: EvaluateOptions | None = None,
    *,
    tokenizer: TokenizerFacts | None = None,
    expected_rows: int | None = None,
    checkpoint: Checkpoint | None = None,
    on_progress: Callable[[EvaluateProgress], None] | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> EvaluateResult:
    """A model's loss on the selected tokens of all rows.

    In a process group (torchrun) each process gives its own rows, and all get the result over all of them. With equal token
    losses the result is the same to the last bit, however the rows are spread over batches and processes.

    Args:
        model: a masked language model; used where it is, in evaluation mode, and left in the mode it was in.
        batches: dicts of tensors or arrays: `input_ids` (B, L), `labels` (B, L) with the original id where selected and -100
            elsewhere, `attention_mask` (B, L) with 0 for padding; `shard` and `row` (B,) say which row it is, and `masking` (B,)
            which masking of it. Rows without these are numbered as they come.
        tokenizer: of the data: its mask id tells the actions apart. Taken from `batches.metadata` where there is that.
        expected_rows: of all processes together, to be held against what was scored.

    Raises:
        DataError: a batch without labels, an id that the model has no embedding for, a row that comes twice, missing rows.
        JobError: another process was lost.
    """
    options = options or EvaluateOptions()
    tokenizer = tokenizer or getattr(getattr(batches, "metadata", None), "tokenizer", None)
    if options.pseudo_likelihood and tokenizer is None:
        raise ConfigError("a pseudo-log-likelihood needs the mask id: give `tokenizer`")
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    scorer = Scorer(
        model,
        device,
        find_dtype(options.dtype, device),
        mask_id=tokenizer.mask_id if tokenizer is not None and options.pseudo_likelihood else None,
        batch_rows=options.batch_rows,
        compile=options.compile,
        on_warning=on_warning,
    )
    totals = Totals()
    resumed = checkpoint.load_into(totals) if checkpoint is not None else 0
    resumed_rows = totals.rows
    special = tokenizer.special_ids if tokenizer is not None else ()
    reader = _Reader(tokenizer, options.pseudo_likelihood, scorer.vocabulary_size, totals.rows)
    waiting: deque[tuple[_Batch, Pending]] = deque()
    begun = time.perf_counter()

    def settle() -> None:
        batch, pending = waiting.popleft()
        mask_id = None if tokenizer is None else tokenizer.mask_id
        totals.add(batch.identity, batch.original, batch.selected, pending.scores(), mask_id)
        if on_progress is not None:
            total = totals.by_position.total()
            loss = float(total.means()[0]) if total.count[0] else None
            seconds = time.perf_counter() - begun
            on_progress(
                EvaluateProgress(rows=totals.rows, loss=loss, rows_per_second=(totals.rows - resumed_rows) / seconds)
            )

    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        for number, raw in enumerate(batches, start=resumed):
            batch = reader.read(raw)
            waiting.append((batch, scorer.launch(batch.inputs, batch.selected)))
            if len(waiting) >= _IN_FLIGHT or device.type == "cpu":
                settle()
            if checkpoint is not None and checkpoint.due():
                while waiting:
                    settle()
                checkpoint.save(totals, number + 1)
        while waiting:
            settle()
    finally:
        for module, training in modes:
            module.training = training
    facts = np.array([resumed_rows, scorer.largest_batch]), np.array([time.perf_counter() - begun])
    mine = {**totals.state(), "facts": facts[0], "seconds": facts[1]}
    everything, states = Totals(), gather(mine)
    for state in states:
        everything.merge(state)
    if expected_rows is not None and everything.rows != expected_rows:
        raise DataError(
            f"{everything.rows:,} rows were scored, {expected_rows:,} expected: a part of the data was not read, or a process was "
            "lost; there is no result"
        )
    return summarise(
        everything,
        special,
        seconds=max(float(s["seconds"][0]) for s in states),
        resumed_rows=sum(int(s["facts"][0]) for s in states),
        head=scorer.head,
        device=_name(device),
        dtype={None: "float32", torch.bfloat16: "bf16", torch.float16: "fp16"}[scorer.dtype],
        batch_rows=max(int(s["facts"][1]) for s in states),
        processes=process_count(),
    )


def _name(device: torch.device) -> str:
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


@dataclass(frozen=True, slots=True)
class _Batch:
    inputs: dict[str, NDArray[Any]]
    identity: NDArray[np.int64]
    original: NDArray[np.int64]
    selected: Selected


class _Reader:
    """Makes checked arrays of batches."""

    def __init__(self, tokenizer: TokenizerFacts | None, every_token: bool, vocabulary_size: int, rows: int) -> None:
        self._special = np.array(tokenizer.special_ids if tokenizer is not None else (), np.int64)
        self._mask_id = -1 if tokenizer is None else tokenizer.mask_id
        self._every_token, self._vocabulary_size, self._rows = every_token, vocabulary_size, rows

    def read(self, raw: dict[str, Any]) -> _Batch:
        batch = {name: np.asarray(value) for name, value in raw.items()}
        if "row" in batch and (batch["row"] < 0).any():  # rows that only fill up a batch
            batch = {name: values[batch["row"] >= 0] for name, values in batch.items()}
        ids = batch["input_ids"].astype(np.int64, copy=False)
        rows = len(ids)
        identity = np.zeros((4, rows), np.int64)
        identity[0] = batch.get("masking", 0)
        identity[1] = batch.get("shard", 0)
        identity[2] = batch.get("row", np.arange(self._rows, self._rows + rows))
        self._rows += rows
        attention = batch.get("attention_mask")
        real = np.ones(ids.shape, bool) if attention is None else attention.astype(bool)
        identity[3] = real.sum(axis=1)
        labels = batch.get("labels")
        original = ids if labels is None else np.where(labels == IGNORE, ids, labels)
        if self._every_token:
            ids = original
            chosen = real & ~np.isin(ids, self._special)
        elif labels is None:
            raise DataError("the rows have no labels, so nothing is selected; mask them, or give --mask-on-the-fly")
        else:
            chosen = labels != IGNORE
        largest = max(int(ids.max(initial=0)), int(original.max(initial=0)))
        if largest >= self._vocabulary_size or original.min(initial=0) < 0:
            raise DataError(
                f"row {identity[2, 0]} of shard {identity[1, 0]}, or one of the {rows - 1} after it, holds id {largest}; the model "
                f"has {self._vocabulary_size:,}: the rows were made with another vocabulary"
            )
        row, position = np.nonzero(chosen)
        inputs_there = ids[row, position] if not self._every_token else np.full(len(row), self._mask_id)
        selected = Selected(row, position, original[row, position], inputs_there)
        # Columns that are padding in every row are not computed.
        width = int(np.flatnonzero(real.any(axis=0)).max(initial=-1)) + 1
        inputs = {"input_ids": ids[:, :width]}
        if not real[:, :width].all():
            inputs["attention_mask"] = real[:, :width].astype(np.int64)
        if "token_type_ids" in batch:
            inputs["token_type_ids"] = batch["token_type_ids"][:, :width].astype(np.int64)
        return _Batch(inputs, identity, original[real], selected)
