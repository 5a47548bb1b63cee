"""Every masking scheme by name."""

from __future__ import annotations

from clozeline import MaskRule

SCHEMES = {
    "bernoulli": MaskRule(),
    "exact": MaskRule(selection="exact"),
    "other-shares": MaskRule(mask_prob=0.4, mask_token_prob=0.5, random_token_prob=0.5),
    "schedule": MaskRule(mask_prob=(0.3, 0.15)),
    "whole-word": MaskRule(unit="word"),
    "whole-word-exact": MaskRule(unit="word", selection="exact"),
    "whole-word-action": MaskRule(unit="word", action_unit="unit"),
    "spans": MaskRule(unit="span"),
    "spans-exact-action": MaskRule(unit="span", selection="exact", action_unit="unit"),
    "n-grams": MaskRule(unit="span", span_lengths="inverse", max_span=3),
    "capped": MaskRule(max_predictions=15),
    "capped-exact": MaskRule(max_predictions=15, selection="exact"),
    "capped-words": MaskRule(max_predictions=15, unit="word"),
    "protected": MaskRule(never_select=((10, 19),), never_draw=((30, 69),)),
    "by-frequency": MaskRule(replacement="frequency"),
}
