"""Mask function, version 1: ids and random words in, masked ids and labels out. Pure, and the only place where masks are made.

The objective is BERT's cloze task (Devlin et al. 2019, section 3.1, "Task #1: Masked LM"): of the selected tokens 80 % become
[MASK], 10 % a random token, 10 % stay. `docs/mask.md` has the exact definition with test vectors; a change of one bit of
output is a new version.

    rule        options: how units are selected and what becomes of them
    vocabulary  which ids may be selected and drawn, and which continue a word
    units       tokens, words or spans: what is selected as a whole
    selection   units and random words in, selected positions out
    apply       selected positions in, masked rows and labels out
"""

from clozeline.mask_function.apply import IGNORE, VERSION, Masked, apply_mask, mask_rows
from clozeline.mask_function.rule import MaskRule, check_cap
from clozeline.mask_function.vocabulary import MaskVocabulary

__all__ = ["IGNORE", "VERSION", "MaskRule", "MaskVocabulary", "Masked", "apply_mask", "check_cap", "mask_rows"]
