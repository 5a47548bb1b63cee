"""`EvaluateCallback`: the exact loss while a Hugging Face `Trainer` trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from clozeline.assessment import AssessOptions, assess

if TYPE_CHECKING:
    import os

    from clozeline.evaluation.result import EvaluateResult


class EvaluateCallback(TrainerCallback):  # type: ignore[misc]
    """Evaluates the model on a data set whenever the Trainer evaluates, and logs `clozeline_loss` and others beside its own.

    Where the Trainer's `eval_loss` is a mean of batch means that changes with the batch size, this is the mean over all selected
    tokens; its masks are the same at each evaluation. `metric_for_best_model="clozeline_loss"` chooses by it. With several
    processes each takes a share of the rows.

    Args:
        path: a masked data set, or a packed one with `options.masking`.
        options: as for `assess`; the model stays on its device.

    Attributes:
        results: (global step, result) of each evaluation.
    """

    def __init__(self, path: str | os.PathLike[str], options: AssessOptions | None = None) -> None:
        self._path, self._options = path, options or AssessOptions()
        self.results: list[tuple[int, EvaluateResult]] = []

    def on_evaluate(
        self, args: Any, state: Any, control: Any, model: Any = None, metrics: Any = None, **kwargs: Any
    ) -> None:
        """Called by the Trainer after its own evaluation."""
        result = assess(self._path, model, self._options).result
        self.results.append((state.global_step, result))
        names = ("loss", "standard_error", "perplexity", "accuracy", "top5_accuracy")
        figures = {f"clozeline_{name}": getattr(result, name) for name in names}
        state.log_history.append({**figures, "epoch": state.epoch, "step": state.global_step})
        if metrics is not None:
            metrics.update({f"eval_{name}": value for name, value in figures.items()})
