"""How rows are masked."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from clozeline.cli.options.run import all_of

if TYPE_CHECKING:
    from clozeline.mask_function import MaskRule
    from clozeline.masking.mask import MaskOptions

_probability = click.FloatRange(0, 1)


class _Probabilities(click.ParamType):  # type: ignore[type-arg]
    """One probability, or one for each copy, with commas between them."""

    name = "probability"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | tuple[float, ...]:
        if isinstance(value, (float, int)):
            return float(value)
        try:
            values = tuple(float(part) for part in (value if isinstance(value, (list, tuple)) else value.split(",")))
        except ValueError:
            self.fail(f"{value!r} is not a number, or numbers with commas between them", param, ctx)
        return values[0] if len(values) == 1 else values


class _Ids(click.ParamType):  # type: ignore[type-arg]
    """Token ids and ranges of ids, with commas between them."""

    name = "ids"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, int], ...]:
        if isinstance(value, tuple):
            return value
        ranges = []
        for part in str(value).split(","):
            first, dash, last = part.strip().partition("-")
            if not first.isdigit() or (dash and not last.isdigit()):
                self.fail(f"{part!r} is neither a token id nor a range of them (1-99)", param, ctx)
            ranges.append((int(first), int(last) if dash else int(first)))
        return tuple(ranges)


rule_options = all_of(
    click.option(
        "--selection",
        type=click.Choice(["bernoulli", "exact"]),
        default="bernoulli",
        show_default=True,
        help="Each token (word, span) on its own, or the same number of tokens in rows of the same length.",
    ),
    click.option(
        "--mask-prob",
        type=_Probabilities(),
        default="0.15",
        show_default=True,
        metavar="P[,P...]",
        help="Share of tokens selected; with commas one for each copy, the last for all further ones.",
    ),
    click.option(
        "--mask-token-prob",
        type=_probability,
        default=0.8,
        show_default=True,
        help="Of these, share set to the mask token.",
    ),
    click.option(
        "--random-token-prob",
        type=_probability,
        default=0.1,
        show_default=True,
        help="Of these, share set to a random token.",
    ),
    click.option("--whole-word", "unit", flag_value="word", help="Select words as a whole."),
    click.option("--spans", "unit", flag_value="span", help="Select spans of words as a whole."),
    click.option(
        "--span-lengths",
        type=click.Choice(["geometric", "inverse"]),
        default="geometric",
        show_default=True,
        help="Words in a span: SpanBERT's distribution, or inverse to the length as ALBERT's n-grams.",
    ),
    click.option(
        "--span-prob", type=_probability, default=0.2, show_default=True, help="Parameter of the geometric lengths."
    ),
    click.option(
        "--max-span", type=click.IntRange(1, 256), default=10, show_default=True, help="Longest span, in words."
    ),
    click.option(
        "--action-unit",
        type=click.Choice(["token", "unit"]),
        default="token",
        show_default=True,
        help="Draw what becomes of each selected token, or of each word or span.",
    ),
    click.option("--max-predictions", type=click.IntRange(min=1), help="Most tokens selected in a row."),
    click.option("--allow-lower-rate", is_flag=True, help="Let --max-predictions lower the rate by more than a tenth."),
    click.option(
        "--never-select",
        type=_Ids(),
        metavar="ID[-ID],...",
        help="Further ids to leave alone (1-99: [unused] entries).",
    ),
    click.option("--never-draw", type=_Ids(), metavar="ID[-ID],...", help="Ids that are no random replacement."),
    click.option(
        "--replacement",
        type=click.Choice(["uniform", "frequency"]),
        default="uniform",
        show_default=True,
        help="How random tokens are drawn: all alike, or by how often they stand in the packed rows.",
    ),
)
mask_options = all_of(
    rule_options,
    click.option(
        "--copies", type=click.IntRange(1, 1000), default=1, show_default=True, help="Maskings of the whole data set."
    ),
    click.option(
        "--labels",
        type=click.Choice(["dense", "sparse"]),
        default="dense",
        show_default=True,
        help="Store each copy's rows and labels whole, or the packed rows once and of each copy the selected positions only.",
    ),
)


def build_mask_options(values: dict[str, Any]) -> MaskOptions:
    from clozeline.masking.mask import MaskOptions

    return MaskOptions(
        seed=values["seed"],
        copies=values["copies"],
        rule=build_mask_rule(values),
        allow_lower_rate=values["allow_lower_rate"],
        labels=values["labels"],
    )


def build_mask_rule(values: dict[str, Any]) -> MaskRule:
    from clozeline.mask_function import MaskRule

    names = [f.name for f in fields(MaskRule)]
    return MaskRule(**{name: values[name] for name in names if values[name] is not None})
