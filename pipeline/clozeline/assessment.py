"""A data set and a model to a loss: puts stream, masking and evaluation together.

Batches are consecutive rows, the same ones for any number of processes, and each process takes whole batches: so the model computes
the same numbers wherever they are computed, and the sums (`evaluation.tally`) do the rest.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import ConfigError, DataError
from clozeline.evaluation.checkpoint import Checkpoint
from clozeline.evaluation.compare import compare
from clozeline.evaluation.device import find_device, positions_at_once
from clozeline.evaluation.evaluate import EvaluateOptions, evaluate, make_scorer
from clozeline.evaluation.models import check_fit, data_vocabulary, load_model, model_digest
from clozeline.evaluation.ranks import gather, join, process_count, process_rank
from clozeline.evaluation.worst import score_rows, worst_rows
from clozeline.store.dataset import Data
from clozeline.streaming.stream import StreamOptions, TokenStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import nn

    from clozeline.evaluation.compare import Comparison
    from clozeline.evaluation.evaluate import EvaluateProgress
    from clozeline.evaluation.result import EvaluateResult
    from clozeline.evaluation.worst import WorstRow
    from clozeline.masking.transform import Masking


_LITTLE_PADDING = 0.02
_SORTED_TOGETHER = 8  # batches
_SHARES = 8  # of the rows
_PASSES = 4  # of a batch for pseudo-likelihoods


@dataclass(frozen=True, kw_only=True, slots=True)
class AssessOptions:
    """Which rows and masks, and how.

    Attributes:
        masking: masks packed rows on the fly; None for rows with static masks, and for pseudo-likelihoods.
        epochs: K, maskings on the fly, 0 to K - 1. Of static masks all copies are used.
        limit_rows: this many rows, drawn from all by a fixed permutation, the same for each masking; None for all.
        batch_rows: rows at once in a process, or as many positions in shorter rows; None for what `compute` says, else the most
            that speed the device up and fit its memory. Halved where memory runs out.
        device: "auto", "cpu", "cuda" or "mps"; a model that is given as a module stays where it is.
        attention, trust_remote_code, allow_pickle: see `evaluation.models.load_model`.
        checkpoint: a file that keeps what is done, once a minute; removed at the end. With `resume` it is gone on from.
        worst_rows: how many of the rows with the highest loss to give token by token.
        compute: see `EvaluateOptions`.
    """

    masking: Masking | None = None
    epochs: int = 1
    limit_rows: int | None = None
    batch_rows: int | None = None
    device: str = "auto"
    attention: str = "auto"
    trust_remote_code: bool = False
    allow_pickle: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    resume: bool = False
    worst_rows: int = 0
    compute: EvaluateOptions = field(default_factory=EvaluateOptions)

    def __post_init__(self) -> None:
        for name in ("epochs", "limit_rows", "batch_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}: at least 1 is needed")
        if self.epochs > 1 and self.masking is None:
            raise ConfigError(f"epochs is {self.epochs}: there is one masking only without masking on the fly")
        if self.masking is not None and self.compute.pseudo_likelihood:
            raise ConfigError("a pseudo-log-likelihood masks each token in turn: leave masking on the fly away")
        if self.resume and self.checkpoint is None:
            raise ConfigError("resume needs the checkpoint that is to be resumed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Assessment:
    """A result with what it is the result of.

    Attributes:
        data, data_sha256: the data set and the digest of its manifest, and so of all rows.
        model, model_sha256: the model and the digest of its weights, however they are stored.
        masks: what the masks depend on: mask function, seed, rule; or {"pseudo_likelihood": true}.
        result: the model's.
        comparison: with a second model; None without one.
        worst: the rows with the highest loss, when asked for; on the first process only, and not in the JSON.
    """

    data: str
    data_sha256: str
    model: str
    model_sha256: str
    masks: dict[str, Any]
    result: EvaluateResult
    comparison: Comparison | None = None
    worst: tuple[WorstRow, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """One flat object: the result's keys beside ours."""
        body = {name: getattr(self, name) for name in ("data", "data_sha256", "model", "model_sha256", "masks")}
        body |= self.result.to_json()
        return body if self.comparison is None else {**body, "comparison": self.comparison.to_json()}


def assess(
    path: str | os.PathLike[str],
    model: str | os.PathLike[str] | nn.Module,
    options: AssessOptions | None = None,
    *,
    against: str | os.PathLike[str] | nn.Module | None = None,
    on_progress: Callable[[EvaluateProgress, int], None] | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> Assessment:
    """A model's loss on the masked tokens of a data set.

    Under torchrun each process takes a share of the batches, and all return the same.

    Args:
        path: a masked data set; or a packed one with `options.masking`, or for pseudo-likelihoods.
        model: its folder, its name on the hub, or the model itself.
        against: a second model, compared row by row.
        on_progress: called with the progress of this process and the rows that it has to do.

    Raises:
        DataError: the data set is damaged or unmasked, or a model does not fit it.
        ConfigError: options that do not go together, or with the data.
        JobError: another process was lost.
    """
    options = options or AssessOptions()
    data = Data(path, "packing", "masking")
    masks = _masks(data, options)
    join()
    result, sha256, worst = _one(data, model, options, "", on_progress, on_warning)
    comparison = None
    if against is not None:
        plain = replace(options, worst_rows=0)
        second, second_sha256, _ = _one(data, against, plain, ".2", on_progress, on_warning)
        comparison = compare(result, second, _name(against), second_sha256)
    return Assessment(
        data=str(path),
        data_sha256=data.manifest.sha256,
        model=_name(model),
        model_sha256=sha256,
        masks=masks,
        result=result,
        comparison=comparison,
        worst=worst,
    )


def _name(model: str | os.PathLike[str] | nn.Module) -> str:
    return str(model) if isinstance(model, (str, os.PathLike)) else type(model).__name__


def _masks(data: Data, options: AssessOptions) -> dict[str, Any]:
    """What the masks depend on.

    Raises:
        DataError, ConfigError: data and options do not go together.
    """
    metadata = data.metadata
    if options.compute.pseudo_likelihood:
        return {"pseudo_likelihood": True}
    if metadata.stage == "masking":
        if options.masking is not None:
            raise ConfigError(
                f"{data.location}: is masked already; leave --mask-on-the-fly away, or give the packed data set"
            )
        return {"mask_function": metadata.mask_function, "seed": metadata.seed, **metadata.config}
    if options.masking is None:
        raise DataError(
            f"{data.location}: holds unmasked rows, on which a masked-token loss has no meaning; mask them (clozeline mask), "
            "or give --mask-on-the-fly"
        )
    return {**options.masking.identity(), "epochs": options.epochs}


def _one(
    data: Data,
    model: str | os.PathLike[str] | nn.Module,
    options: AssessOptions,
    suffix: str,
    on_progress: Callable[[EvaluateProgress, int], None] | None,
    on_warning: Callable[[str], None] | None,
) -> tuple[EvaluateResult, str, tuple[WorstRow, ...]]:
    loaded: Any = model
    source = model if isinstance(model, (str, os.PathLike)) else None
    if source is None:
        device = next(p.device for p in loaded.parameters())
    else:
        device = find_device(options.device, int(os.environ.get("LOCAL_RANK", "0")))
        loaded = load_model(
            source,
            device,
            attention=options.attention,
            trust_remote_code=options.trust_remote_code,
            allow_pickle=options.allow_pickle,
        )
    check_fit(loaded, source, data.metadata, data.tokenizer_path)
    sha256 = model_digest(loaded)
    batch_rows = (
        options.batch_rows or options.compute.batch_rows or _rows_that_fit(loaded, device, data, options, on_warning)
    )
    batches = Batches(data, options, batch_rows)
    checkpoint = None
    if options.checkpoint is not None:
        identity = {
            "data": data.manifest.sha256,
            "model": sha256,
            "masks": _masks(data, options),
            "dtype": options.compute.dtype,
            "documents_apart": options.compute.documents_apart,
            "limit_rows": options.limit_rows,
            "batch_rows": [batch_rows, batches.batch_rows],
        }
        checkpoint = Checkpoint(
            f"{os.fspath(options.checkpoint)}{suffix}",
            identity,
            resume=options.resume,
            rank=process_rank(),
            processes=process_count(),
        )
        batches.skip = checkpoint.batches
    result = evaluate(
        loaded,
        batches,
        replace(options.compute, batch_rows=batch_rows),
        tokenizer=data.metadata.tokenizer,
        expected_rows=batches.rows,
        checkpoint=checkpoint,
        on_progress=None if on_progress is None else lambda p: on_progress(p, batches.rows // process_count()),
        on_warning=on_warning,
    )
    if checkpoint is not None:
        checkpoint.remove()
    worst: list[WorstRow] = []
    if options.worst_rows and process_rank() == 0:
        chosen = (batches.row(*where) for where in worst_rows(result, options.worst_rows))
        tokens = {i: token for token, i in data_vocabulary(data.tokenizer_path).items()}
        worst = score_rows(loaded.eval(), chosen, options.compute, data.metadata.tokenizer, tokens)
    return result, sha256, tuple(worst)


def _rows_that_fit(
    model: nn.Module,
    device: torch.device,
    data: Data,
    options: AssessOptions,
    on_warning: Callable[[str], None] | None,
) -> int:
    """How many rows to compute at once: as many as keep the device busy, if its memory holds them; the same in each process.

    On a CPU that is not tried: a pass takes seconds there, and the memory of 8,192 positions is small beside that of the model.
    """
    length = data.metadata.row_length or 1
    rows = max(1, positions_at_once(device) // length)
    if device.type == "cpu":
        return rows
    scorer = make_scorer(model, replace(options.compute, compile=False), data.metadata.tokenizer, on_warning)
    fitting = scorer.probe(rows, length)
    return min(int(state["rows"][0]) for state in gather({"rows": np.array([fitting])}))


class Batches:
    """This process's batches of all maskings, one after another.

    Args:
        computed: rows at once in the model.

    Attributes:
        batch_rows: B.
        rows: of all maskings and processes together.
        skip: batches to leave out at the start, done before.
    """

    def __init__(self, data: Data, options: AssessOptions, computed: int) -> None:
        self._data, self._options, self.skip = data, options, 0
        copies = len({entry.copy for entry in data.manifest.shards})
        in_one = data.manifest.rows // max(1, copies)
        self._limit = min(in_one, options.limit_rows or in_one)
        self._maskings = 1 if options.compute.pseudo_likelihood else max(copies, options.epochs)
        self.rows = self._limit * self._maskings
        self.batch_rows = self._together(computed)
        self._extra = ("document_lengths",) if data.metadata.config_of("packing").get("boundaries") else ()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        together = self.batch_rows * process_count()
        per_masking = -(-self._limit // together)
        for masking in range(self.skip // max(1, per_masking), self._maskings):
            stream = self._stream(masking)
            done = max(0, self.skip - masking * per_masking)
            if done:
                stream.load_state_dict({**stream.state_dict(), "rows": done * together})
            for number, batch in zip(range(done, per_masking), stream, strict=False):
                first = number * together + process_rank() * self.batch_rows
                yield self._named(batch, masking, self._limit - first)

    def _together(self, computed: int) -> int:
        """Rows of a batch; an eighth of all at most, so that processes get equal shares.

        Where rows are padded, or documents read apart, up to 8 times what is computed at once, to be sorted into sequences of near
        length. For pseudo-likelihoods, of which a row of n tokens makes n, as few as make some passes.
        """
        most = max(1, self._limit // _SHARES)
        entries, length = self._data.manifest.shards, self._data.metadata.row_length or 1
        tokens = sum(e.tokens for e in entries) / max(1, sum(e.rows for e in entries))
        if self._options.compute.pseudo_likelihood:
            return max(1, min(most, int(_PASSES * computed * length / max(1.0, tokens) ** 2)))
        positions = sum(e.rows * (e.row_length or length) for e in entries) / max(1, sum(e.rows for e in entries))
        if self._options.compute.documents_apart or tokens < (1 - _LITTLE_PADDING) * positions:
            return computed * max(1, min(_SORTED_TOGETHER, most // computed))
        return computed

    def row(self, masking: int, shard: int, row: int) -> dict[str, Any]:
        """A batch of one row."""
        masked = self._data.metadata.stage == "masking"
        entries = self._data.manifest.shards
        index = next(i for i, e in enumerate(entries) if e.shard == shard and (not masked or e.copy == masking))
        here = self._data.shard(index)
        batch = {name: here.take(name, np.array([row])) for name in here.columns()}
        where = {"shards": np.array([shard]), "rows": np.array([row])}
        if self._options.masking is not None:
            batch = self._options.masking(batch, **where, epoch=masking, meta=self._data.metadata)
        return {**batch, "masking": np.array([masking]), "shard": where["shards"], "row": where["rows"]}

    def _stream(self, masking: int) -> TokenStream:
        masks = self._options.masking
        return TokenStream(
            self._data.location.path,
            batch_size=self.batch_rows,
            transform=None if masks is None else _InEpoch(masks, masking),
            shuffle=None if self._options.limit_rows is None else "global",
            tail="pad",
            epoch=0,
            rank=process_rank(),
            world_size=process_count(),
            copy=masking if self._data.metadata.stage == "masking" else 0,
            options=StreamOptions(identity=True, columns=self._extra),
        )

    def _named(self, batch: dict[str, Any], masking: int, left: int) -> dict[str, Any]:
        """With the masking in it, and without padding rows and those beyond the limit."""
        keep = (batch["row"] >= 0).numpy() & (np.arange(len(batch["row"])) < left)
        kept = {name: values[keep] for name, values in batch.items()} if not keep.all() else dict(batch)
        return {**kept, "masking": np.full(int(keep.sum()), masking)}


@dataclass(frozen=True, slots=True)
class _InEpoch:
    """Masks of one epoch, whatever epoch the rows are read in."""

    masking: Masking
    epoch: int

    def __call__(self, batch: dict[str, Any], **where: Any) -> dict[str, Any]:
        return self.masking(batch, **{**where, "epoch": self.epoch})

    @property
    def columns(self) -> tuple[str, ...]:
        """What the masking needs beside what models take."""
        return tuple(getattr(self.masking, "columns", ()))

    def identity(self) -> dict[str, Any]:
        return {**self.masking.identity(), "epoch": self.epoch}
