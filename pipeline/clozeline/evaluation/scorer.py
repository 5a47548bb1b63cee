"""The loss kernel: a batch and a model in, one score per selected token out.

Shapes: B rows of L positions, S sequences and N selected tokens in them; W positions of the longest of some sequences; H hidden
units, V logits.
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
from clozeline.evaluation.device import positions_at_once
from clozeline.evaluation.heads import find_head
from clozeline.evaluation.sequences import in_turn, take
from clozeline.evaluation.tally import TokenScores

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from clozeline.evaluation.reader import RowBatch

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
        tokens: int64 arrays: which of the batch's N tokens each part holds.
        parts: their losses and counts, as `score_logits` gives them, still on the device.
    """

    tokens: list[NDArray[np.int64]]
    parts: list[tuple[Tensor, Tensor]]

    def scores(self) -> TokenScores:
        """On the host, in the order of the batch; waits for the device."""
        if not self.parts:
            return TokenScores(np.zeros(0), np.zeros(0, np.int64))
        loss, above = (torch.cat(column).cpu() for column in zip(*self.parts, strict=True))
        order = np.argsort(np.concatenate(self.tokens), kind="stable")
        return TokenScores(loss.double().numpy()[order], above.numpy()[order])


class Scorer:
    """A model as a function from batches to token scores.

    Args:
        model: a masked language model of `transformers`, or any module that takes `input_ids` and `attention_mask` and
            returns logits (B, L, V) as `.logits`, as the first of a tuple, or bare. In evaluation mode.
        device: where the model is.
        dtype: of the matrix products, by autocast; None for the model's own.
        mask_id: mask each selected token on its own, in a copy of its sequence (Salazar et al. 2020, section 2.3); None where the
            rows are masked already.
        pad_id: fills shorter sequences up.
        batch_rows: rows of length L at once, or as many positions in shorter sequences; None for all that come together, or with
            `mask_id` for a number that suits the device.
        compile: pass the encoder through `torch.compile`.

    Attributes:
        head: "selected positions", or "every position" where the head cannot be called apart.
        dtype, device: as given.
        largest_batch: rows of length L, B at most, that went at once so far; less after memory ran out.
        positions, tokens: computed so far, with padding and without.
        vocabulary_size: ids that the model knows.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        dtype: torch.dtype | None = None,
        *,
        mask_id: int | None = None,
        pad_id: int = 0,
        batch_rows: int | None = None,
        compile: bool = False,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self.dtype, self.device, self._mask_id, self._pad_id = dtype, device, mask_id, pad_id
        self._batch_rows, self._warn = batch_rows, on_warning
        self._limit: int | None = None  # positions at once; known once memory has run out
        self.largest_batch = self.positions = self.tokens = 0
        self._head = find_head(model)
        encoder: Any = model.base_model if self._head is not None else model
        self._segments = _takes_segments(encoder)
        self._encoder: Any = torch.compile(encoder) if compile else encoder
        self.head = "every position" if self._head is None else "selected positions"
        self.vocabulary_size = vocabulary_rows(model)

    def launch(self, batch: RowBatch) -> Pending:
        """Starts the computation of a batch; on a GPU it goes on while the host does other things.

        Raises:
            ConfigError: a single sequence does not fit into the device's memory.
        """
        rows, length = batch.inputs["input_ids"].shape
        # A unit is what the model is called with: a sequence that holds selected tokens, or a copy of it for each of them.
        sequence = batch.selected.sequences
        if self._mask_id is None:
            units, unit = np.unique(sequence, return_inverse=True)
        else:
            units, unit = sequence, np.arange(len(sequence))
        order = in_turn(batch.sequences.lengths[units])
        lengths = batch.sequences.lengths[units[order]]
        turn = np.empty_like(order)
        turn[order] = np.arange(len(order))
        tokens = np.argsort(turn[unit], kind="stable")
        token_turns = turn[unit][tokens]
        pending = Pending([], [])
        done = 0
        while done < len(order):
            most = self._positions(rows, length)
            stop = done + take(lengths, done, most)
            first, last = np.searchsorted(token_turns, (done, stop))
            here = tokens[first:last]
            part = self._tried(self._run, batch, units[order[done:stop]], here, token_turns[first:last] - done)
            if part is None:
                self._limit = self._half(stop - done, int(lengths[done])) * int(lengths[done])
                self.largest_batch = 0
                continue
            self.largest_batch = max(self.largest_batch, min(rows, max(1, most // max(1, length))))
            self.positions += (stop - done) * int(lengths[done])
            self.tokens += int(lengths[done:stop].sum())
            pending.tokens.append(here)
            pending.parts.append(part)
            done = stop
        return pending

    def _positions(self, rows: int, length: int) -> int:
        """How many positions to compute at once."""
        if self._limit is not None:
            return self._limit
        if self._batch_rows is not None:
            return self._batch_rows * length
        return rows * length if self._mask_id is None else max(length, positions_at_once(self.device))

    def probe(self, rows: int, length: int) -> int:
        """The most rows that the device's memory holds at once: the number given, or its half, its quarter, ..., by trying.

        Args:
            length: of each row; a quarter of its positions are scored.

        Raises:
            ConfigError: a single row does not fit.
        """
        while self._tried(self._blank, rows, length) is None:
            rows = self._half(rows, length)
        return rows

    def _blank(self, rows: int, length: int) -> tuple[Tensor, Tensor]:
        ids = np.zeros((rows, length), np.int64)
        index = np.arange(0, rows * length, 4)
        inputs = {"input_ids": self._send(ids), "attention_mask": self._send(np.ones_like(ids))}
        return self._score(inputs, self._send(index), self._send(np.zeros_like(index)))

    @staticmethod
    def _tried(run: Callable[..., tuple[Tensor, Tensor]], *arguments: Any) -> tuple[Tensor, Tensor] | None:
        """What it returns; None where memory runs out."""
        try:
            return run(*arguments)
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
        return None  # not within the handler, whose error would keep alive what filled the memory

    def _half(self, count: int, length: int) -> int:
        """Half of a number of rows that does not fit into memory."""
        if count == 1:
            raise ConfigError(
                f"one row does not fit into the memory of {self.device} ({length} positions); use a smaller model, --dtype bf16, "
                "or --device cpu"
            )
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if self._warn is not None:
            what = f"{count} rows of {length} positions do not fit into the memory of {self.device}"
            self._warn(f"{what}: going on with {count // 2} at once")
        return count // 2

    def _run(
        self, batch: RowBatch, sequences: NDArray[np.int64], tokens: NDArray[np.int64], units: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        """Scores some tokens.

        Args:
            sequences: the model's input, one line each.
            tokens, units: which of the batch's tokens, and in which line each is.
        """
        cut = batch.sequences.cut
        ids = cut(batch.inputs["input_ids"], sequences, self._pad_id)
        width = ids.shape[1]
        positions = batch.selected.positions[tokens] - batch.sequences.starts[sequences][units]
        if self._mask_id is not None:
            ids[units, positions] = self._mask_id
        inputs = {"input_ids": ids}
        there = cut(batch.inputs["attention_mask"], sequences, 0).astype(bool)
        if not there.all():
            inputs["attention_mask"] = there.astype(np.int64)
        if self._segments and "token_type_ids" in batch.inputs:
            inputs["token_type_ids"] = cut(batch.inputs["token_type_ids"], sequences, 0)
        index, labels = units * width + positions, batch.selected.labels[tokens]
        return self._score({name: self._send(v) for name, v in inputs.items()}, self._send(index), self._send(labels))

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
