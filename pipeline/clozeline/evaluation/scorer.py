"""The loss kernel: a batch and a model in, one score per selected token out.

Shapes: B rows of L positions, N selected positions in them, H hidden units, V logits.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clozeline.errors import ConfigError
from clozeline.evaluation.device import first_batch_rows
from clozeline.evaluation.heads import find_head
from clozeline.evaluation.tally import TokenScores

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from clozeline.evaluation.reader import Selected

LOGITS_AT_ONCE = 2**25  # elements; 128 MiB as float32
_TOP = 5


def score_logits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of N tokens from their logits, which are overwritten.

    -log P = m + log(sum exp(x - m)) - x[label], m = max x. The exponentials and their sum are float32, the rest is float64:
    equal logits give ln V to the last digit, and a model that is certain and right gives 0.

    Args:
        logits: (N, V) of any floating dtype.
        labels: int64 (N,).

    Returns:
        float64 (N,), the losses in nats, and int64 (N,), how many other logits are not smaller, counted up to 5.
    """
    logits = logits.float()
    target = logits.gather(1, labels[:, None])
    top = logits.topk(min(_TOP + 1, logits.shape[1]), dim=1).values
    above = ((top >= target).sum(1) - 1).clamp(0, _TOP)
    largest = top[:, :1]
    exponentials = logits.sub_(largest).exp_().sum(1, keepdim=True)
    dtype = wide(logits.device)
    loss = (largest.to(dtype) - target.to(dtype)) + exponentials.to(dtype).log()
    return loss[:, 0], above


def wide(device: torch.device) -> torch.dtype:
    """float64 where the device has it (Apple's has not)."""
    return torch.float32 if device.type == "mps" else torch.float64


@dataclass(frozen=True, slots=True)
class Pending:
    """Scores on their way.

    Attributes:
        parts: losses and counts, as `score_logits` gives them, still on the device.
    """

    parts: list[tuple[Tensor, Tensor]]

    def scores(self) -> TokenScores:
        """On the host; waits for the device."""
        if not self.parts:
            return TokenScores(np.zeros(0), np.zeros(0, np.int64))
        loss, above = (torch.cat(column).cpu() for column in zip(*self.parts, strict=True))
        return TokenScores(loss.double().numpy(), above.numpy())


class Scorer:
    """A model as a function from batches to token scores.

    Args:
        model: a masked language model of `transformers`, or any module that takes `input_ids` and `attention_mask` and
            returns logits (B, L, V) as `.logits`, as the first of a tuple, or bare. In evaluation mode.
        device: where the model is.
        dtype: of the matrix products, by autocast; None for the model's own.
        mask_id: mask each selected token on its own, one row each (Salazar et al. 2020, section 2.3); None where the rows are
            masked already.
        batch_rows: rows at once; None for all that come together, or with `mask_id` for a number that suits the device.
        compile: pass the encoder through `torch.compile`.

    Attributes:
        head: "selected positions", or "every position" where the head cannot be called apart.
        dtype, device: as given.
        largest_batch: rows of the largest batch so far.
        vocabulary_size: ids that the model knows.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        dtype: torch.dtype | None = None,
        *,
        mask_id: int | None = None,
        batch_rows: int | None = None,
        compile: bool = False,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self.dtype, self.device, self._mask_id = dtype, device, mask_id
        self._batch_rows, self._warn = batch_rows, on_warning
        self.largest_batch = 0
        self._head = find_head(model)
        encoder: Any = model.base_model if self._head is not None else model
        self._segments = _takes_segments(encoder)
        self._encoder: Any = torch.compile(encoder) if compile else encoder
        self.head = "every position" if self._head is None else "selected positions"
        self.vocabulary_size = vocabulary_rows(model)

    def launch(self, inputs: dict[str, NDArray[Any]], selected: Selected) -> Pending:
        """Starts the computation of a batch; on a GPU it goes on while the host does other things.

        Args:
            inputs: what the model is called with, (B, L) each.
            selected: positions to score.

        Raises:
            ConfigError: a single row does not fit into the device's memory.
        """
        parts = []
        if not self._segments:
            inputs = {name: values for name, values in inputs.items() if name != "token_type_ids"}
        # What is done at once is rows, or with `mask_id` tokens, each of which makes a row.
        units = len(inputs["input_ids"] if self._mask_id is None else selected.rows)
        usual = units if self._mask_id is None else first_batch_rows(self.device, max(1, inputs["input_ids"].shape[1]))
        start = 0
        while start < units:
            stop = min(units, start + (self._batch_rows or usual))
            try:
                part = self._run(inputs, selected, start, stop)
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                self._halve(stop - start)
                continue
            self.largest_batch = max(self.largest_batch, stop - start)
            parts += [part] if part is not None else []
            start = stop
        return Pending(parts)

    def _halve(self, rows: int) -> None:
        if rows == 1:
            raise ConfigError(
                f"one row does not fit into the memory of {self.device}; use a smaller model, --dtype bf16, or --device cpu"
            ) from None
        self._batch_rows = rows // 2
        self.largest_batch = 0
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if self._warn is not None:
            self._warn(
                f"{rows} rows do not fit into the memory of {self.device}: going on with {self._batch_rows} at once"
            )

    def _run(self, inputs: dict[str, Any], selected: Selected, start: int, stop: int) -> tuple[Tensor, Tensor] | None:
        if self._mask_id is None:
            first, last = np.searchsorted(selected.rows, (start, stop))
            rows, positions, labels = (
                selected.rows[first:last] - start,
                *(c[first:last] for c in (selected.positions, selected.labels)),
            )
            part = {name: values[start:stop] for name, values in inputs.items()}
        else:
            source, positions, labels = (c[start:stop] for c in (selected.rows, selected.positions, selected.labels))
            rows = np.arange(stop - start)
            part = {name: values[source] for name, values in inputs.items()}
            part["input_ids"][rows, positions] = self._mask_id
        if not len(labels):
            return None
        index = rows * inputs["input_ids"].shape[1] + positions
        return self._score({name: self._send(v) for name, v in part.items()}, self._send(index), self._send(labels))

    def _send(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if self.device.type == "cuda":  # from pinned memory the copy does not hold up the host
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    @torch.inference_mode()
    def _score(self, inputs: dict[str, Tensor], index: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        count = len(index)
        loss = torch.empty(count, dtype=wide(self.device), device=self.device)
        above = torch.empty(count, dtype=torch.int64, device=self.device)
        with self._precision():
            hidden = _first(self._encoder(**inputs))
            hidden = hidden.reshape(-1, hidden.shape[-1])[index]
            width = hidden.shape[-1] if self._head is None else self.vocabulary_size
            step = max(1, LOGITS_AT_ONCE // width)
            for first in range(0, count, step):
                part = slice(first, first + step)
                logits = hidden[part] if self._head is None else self._head(hidden[part])
                loss[part], above[part] = score_logits(logits, labels[part])
        return loss, above

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)


def _first(output: Any) -> Tensor:
    """Logits or hidden states out of whatever a model returns."""
    if isinstance(output, torch.Tensor):
        return output
    found = output.get("logits", output.get("last_hidden_state")) if hasattr(output, "get") else None
    first: Tensor = found if found is not None else output[0]
    return first


def vocabulary_rows(model: Any) -> int:
    """Ids that a model has both an embedding and a logit for; without limit where it does not say."""
    sizes = []
    for name in ("get_input_embeddings", "get_output_embeddings"):
        layer: Any = getattr(model, name, lambda: None)()
        if layer is not None:
            sizes.append(int(layer.weight.shape[0]))
    return min(sizes, default=sys.maxsize)


def _takes_segments(encoder: Any) -> bool:
    """Whether a model tells segment A from segment B."""
    kinds = getattr(getattr(encoder, "config", None), "type_vocab_size", 0)
    return kinds > 1 and "token_type_ids" in inspect.signature(encoder.forward).parameters


def _out_of_memory(error: RuntimeError) -> bool:
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in text or "can't allocate memory" in text
