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
from clozeline.evaluation.reader import BatchReader
from clozeline.evaluation.result import EvaluateResult, summarise
from clozeline.evaluation.scorer import Scorer
from clozeline.evaluation.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn

    from clozeline.evaluation.checkpoint import Checkpoint
    from clozeline.evaluation.reader import RowBatch
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
        documents_apart: let the model read each document of a row on its own, as it would alone; needs `document_lengths`.
        batch_rows: rows at once on the device, or as many positions in shorter rows; None for as many as come together
            (pseudo-likelihood: as suit the device). Halved as often as memory asks for it.
        compile: pass the encoder through `torch.compile`.
    """

    dtype: str = "float32"
    batch_rows: int | None = None
    pseudo_likelihood: bool = False
    documents_apart: bool = False
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
            which masking of it. Rows without these are numbered as they come. `document_lengths` (B, S), tokens of each document
            in the row, adds figures by document. Rows of a batch are computed in the order of their lengths, so that little
            padding is; large batches of rows of many lengths are fastest.
        tokenizer: of the data: its mask id tells the actions apart. Taken from a `TokenStream` or `TokenLoader`.
        expected_rows: of all processes together, to be held against what was scored.

    Raises:
        DataError: a batch without labels, an id that the model has no embedding for, a row that comes twice, missing rows.
        JobError: another process was lost.
    """
    options = options or EvaluateOptions()
    if tokenizer is None:  # a stream tells, or a loader's stream
        tokenizer = getattr(getattr(getattr(batches, "stream", batches), "metadata", None), "tokenizer", None)
    scorer = make_scorer(model, options, tokenizer, on_warning)
    device = scorer.device
    totals = Totals()
    resumed = checkpoint.load_into(totals) if checkpoint is not None else 0
    resumed_rows = len(totals.rows)
    special = tokenizer.special_ids if tokenizer is not None else ()
    reader = BatchReader(
        tokenizer,
        every_token=options.pseudo_likelihood,
        vocabulary_size=scorer.vocabulary_size,
        first_row=resumed_rows,
        apart=options.documents_apart,
    )
    waiting: deque[tuple[RowBatch, Pending]] = deque()
    begun = time.perf_counter()

    def settle() -> None:
        batch, pending = waiting.popleft()
        mask_id = None if tokenizer is None else tokenizer.mask_id
        totals.add(batch, pending.scores(), mask_id)
        if on_progress is not None:
            total = totals.by_position.total()
            loss = float(total.means()[0]) if total.count[0] else None
            rows, seconds = len(totals.rows), time.perf_counter() - begun
            on_progress(EvaluateProgress(rows=rows, loss=loss, rows_per_second=(rows - resumed_rows) / seconds))

    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        for number, raw in enumerate(batches, start=resumed):
            batch = reader.read(raw)
            waiting.append((batch, scorer.launch(batch)))
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
    facts = np.array([resumed_rows, scorer.largest_batch, scorer.positions, scorer.tokens])
    mine = {**totals.state(), "facts": facts, "seconds": np.array([time.perf_counter() - begun])}
    everything, states = Totals(), gather(mine)
    for state in states:
        everything.merge(state)
    if expected_rows is not None and len(everything.rows) != expected_rows:
        raise DataError(
            f"{len(everything.rows):,} rows were scored, {expected_rows:,} expected: a part of the data was not read, or a "
            "process was lost; there is no result"
        )
    resumed_rows, _, positions, tokens = np.sum([s["facts"] for s in states], axis=0).tolist()
    return summarise(
        everything,
        special,
        seconds=max(float(s["seconds"][0]) for s in states),
        resumed_rows=resumed_rows,
        head=scorer.head,
        context="document" if options.documents_apart else "row",
        device=_name(device),
        dtype={None: "float32", torch.bfloat16: "bf16", torch.float16: "fp16"}[scorer.dtype],
        batch_rows=max(int(s["facts"][1]) for s in states),
        padding_share=1 - tokens / positions if positions else 0.0,
        processes=process_count(),
    )


def make_scorer(
    model: nn.Module,
    options: EvaluateOptions,
    tokenizer: TokenizerFacts | None,
    on_warning: Callable[[str], None] | None = None,
) -> Scorer:
    """The model as a function from batches to scores, on the device where it is."""
    if options.pseudo_likelihood and tokenizer is None:
        raise ConfigError("a pseudo-log-likelihood needs the mask id: give `tokenizer`")
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    return Scorer(
        model,
        device,
        find_dtype(options.dtype, device),
        mask_id=tokenizer.mask_id if tokenizer is not None and options.pseudo_likelihood else None,
        pad_id=0 if tokenizer is None else tokenizer.pad_id,
        batch_rows=options.batch_rows,
        compile=options.compile,
        on_warning=on_warning,
    )


def _name(device: torch.device) -> str:
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type
