"""Where a model's encoder ends and its vocabulary head begins.

The head of a masked language model works on each position alone, so it need not be computed where nothing is predicted: with
15 % of the tokens selected that saves 85 % of its work, and of the memory that its logits take.

Shapes: B rows of L positions, N selected positions, H hidden units, V logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    Head = Callable[[Tensor], Tensor]


def _distilbert(model: Any) -> Head:
    return lambda hidden: model.vocab_projector(model.vocab_layer_norm(model.activation(model.vocab_transform(hidden))))


def _electra(model: Any) -> Head:
    return lambda hidden: model.generator_lm_head(model.generator_predictions(hidden))


def _modernbert(model: Any) -> Head:
    return lambda hidden: model.decoder(model.head(hidden))


def _deberta(model: Any) -> Head:
    if model.legacy:
        return lambda hidden: model.cls(hidden)
    return lambda hidden: model.lm_predictions(hidden, model.deberta.embeddings.word_embeddings)


HEADS: dict[str, Callable[[Any], Head]] = {
    "BertForMaskedLM": lambda model: model.cls,
    "CamembertForMaskedLM": lambda model: model.lm_head,
    "DebertaForMaskedLM": _deberta,
    "DebertaV2ForMaskedLM": _deberta,
    "DistilBertForMaskedLM": _distilbert,
    "ElectraForMaskedLM": _electra,
    "ModernBertForMaskedLM": _modernbert,
    "RobertaForMaskedLM": lambda model: model.lm_head,
    "XLMRobertaForMaskedLM": lambda model: model.lm_head,
}


def find_head(model: nn.Module) -> Head | None:
    """The head of a model, (N, H) to (N, V), to be called on `model.base_model`'s hidden states.

    None for a class that is not known, a subclass of a known one included: such a model is called as a whole.
    """
    kind = type(model)
    if not kind.__module__.startswith("transformers.models.") or kind.__name__ not in HEADS:
        return None
    return HEADS[kind.__name__](model)
