"""Options of the mask function."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import exp, floor, lgamma, log
from typing import Any, Literal

from clozeline.errors import ConfigError

Ranges = tuple[tuple[int, int], ...]
_CHOICES: dict[str, tuple[str, ...]] = {
    "selection": ("bernoulli", "exact"),
    "unit": ("token", "word", "span"),
    "span_lengths": ("geometric", "inverse"),
    "action_unit": ("token", "unit"),
    "replacement": ("uniform", "frequency"),
}
LOWER_BY = 0.1  # a cap may lower the rate by this share without being told so


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskRule:
    """How units are selected and what becomes of them.

    Attributes:
        selection: "bernoulli" selects each unit on its own; "exact" selects the same number of tokens in rows of the same
            length, give or take a word or span.
        mask_prob: share of the maskable tokens that are selected; or one share for each copy, the last of them holding
            for all further copies.
        mask_token_prob, random_token_prob: shares of the selected tokens that become [MASK] and a random ordinary
            token; the rest keep their token.
        unit: what is selected as a whole: a "token", a "word" (whole-word masking), or a "span" of words.
        span_lengths: words in a span: "geometric" (SpanBERT) or "inverse" to the length (ALBERT's n-grams).
        span_prob: parameter of the geometric distribution.
        max_span: longest span, in words.
        action_unit: what becomes of a selected token is drawn for each "token" (BERT) or once for its "unit" (SpanBERT).
        max_predictions: most tokens selected in a row; None for no cap.
        never_select, never_draw: ids, as inclusive ranges, that are never selected, or never drawn as a random token.
            Special ids are neither, without being named.
        replacement: random tokens are drawn "uniform"ly, or by their "frequency" in the packed rows.
    """

    selection: Literal["bernoulli", "exact"] = "bernoulli"
    mask_prob: float | tuple[float, ...] = 0.15
    mask_token_prob: float = 0.8
    random_token_prob: float = 0.1
    unit: Literal["token", "word", "span"] = "token"
    span_lengths: Literal["geometric", "inverse"] = "geometric"
    span_prob: float = 0.2
    max_span: int = 10
    action_unit: Literal["token", "unit"] = "token"
    max_predictions: int | None = None
    never_select: Ranges = ()
    never_draw: Ranges = ()
    replacement: Literal["uniform", "frequency"] = "uniform"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name} is {getattr(self, name)!r}: use {' or '.join(map(repr, choices))}")
        if isinstance(self.mask_prob, (list, tuple)):
            object.__setattr__(self, "mask_prob", tuple(float(p) for p in self.mask_prob))
        for probability in self.schedule or (-1.0,):
            _check_probability("mask_prob", probability)
        for name in ("mask_token_prob", "random_token_prob", "span_prob"):
            _check_probability(name, getattr(self, name))
        total = self.mask_token_prob + self.random_token_prob
        if total > 1.0:
            raise ConfigError(
                f"mask_token_prob {self.mask_token_prob} + random_token_prob {self.random_token_prob} = {total:g}: "
                "they are shares of the selected tokens and must not sum to more than 1"
            )
        if not 1 <= self.max_span <= 256:
            raise ConfigError(f"max_span is {self.max_span}: it lies between 1 and 256 words")
        if self.max_predictions is not None and self.max_predictions < 1:
            raise ConfigError(f"max_predictions is {self.max_predictions}: at least 1 is needed, or none at all")
        for name in ("never_select", "never_draw"):
            ranges = tuple((int(a), int(b)) for a, b in getattr(self, name))
            object.__setattr__(self, name, ranges)
            for a, b in ranges:
                if not 0 <= a <= b:
                    raise ConfigError(f"{name} holds the range {a}-{b}: ids go from 0 up")

    @property
    def schedule(self) -> tuple[float, ...]:
        """`mask_prob` for copy 0, 1, ..."""
        return self.mask_prob if isinstance(self.mask_prob, tuple) else (self.mask_prob,)

    def for_copy(self, copy: int) -> MaskRule:
        """The rule of one copy, its `mask_prob` a number."""
        if not isinstance(self.mask_prob, tuple):
            return self
        return replace(self, mask_prob=self.schedule[min(copy, len(self.schedule) - 1)])

    @property
    def probability(self) -> float:
        """`mask_prob` of a rule for one copy."""
        if isinstance(self.mask_prob, tuple):
            raise ConfigError("mask_prob is a schedule over copies: take the rule `for_copy`")
        return self.mask_prob

    @property
    def span_distribution(self) -> list[float]:
        """Probability of a span of 1, 2, ... `max_span` words, before rows and separators cut it short."""
        weights, weight = [], 1.0
        for length in range(1, self.max_span + 1):
            weights.append(weight if self.span_lengths == "geometric" else 1.0 / length)
            weight *= 1.0 - self.span_prob
        total = sum(weights)
        return [w / total for w in weights]

    def budget(self, maskable: int) -> int:
        """Tokens that "exact" selects of a row's maskable tokens, give or take part of a word or span."""
        probability = self.probability
        if not maskable or not probability:
            return 0
        budget = max(1, floor(probability * maskable + 0.5))
        return budget if self.max_predictions is None else min(budget, self.max_predictions)

    def expected(self, maskable: int) -> float:
        """Tokens selected of a row's maskable tokens on average; for words and spans under a cap, an upper bound."""
        if self.selection == "exact":
            return self.budget(maskable)
        mean, cap = self.probability * maskable, self.max_predictions
        if cap is None or cap >= maskable:
            return mean
        if self.unit != "token" or self.probability in (0.0, 1.0):
            return min(mean, cap)
        # E min(X, N) = N - sum over k < N of (N - k) P(X = k), X binomial.
        return cap - sum((cap - k) * exp(_log_binomial(k, maskable, self.probability)) for k in range(cap))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> MaskRule:
        return cls(**data)


def check_cap(rule: MaskRule, maskable: int, *, allow_lower_rate: bool) -> None:
    """Refuses a cap that would quietly lower the masking rate of full rows.

    Args:
        maskable: tokens of a full row that may be selected.

    Raises:
        ConfigError: by more than a tenth, and not allowed to.
    """
    if rule.max_predictions is None or allow_lower_rate or not maskable:
        return
    for copy in range(len(rule.schedule)):
        one = rule.for_copy(copy)
        effective = one.expected(maskable) / maskable
        if effective < one.probability * (1 - LOWER_BY):
            raise ConfigError(
                f"max_predictions {rule.max_predictions} of {maskable} tokens lowers the rate from {one.probability:.2%} to "
                f"{effective:.2%}; raise it to {floor(one.probability * maskable * 1.25) + 1}, or allow the lower rate "
                "(--allow-lower-rate)"
            )


def _check_probability(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name} is {value}: a probability lies between 0 and 1")


def _log_binomial(k: int, n: int, p: float) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log(1 - p)
