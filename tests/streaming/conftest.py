"""Data sets for the tests of streaming."""

from __future__ import annotations

from pathlib import Path

import pytest
from stream_data import write_packed

from clozeline.mask_function import MaskRule
from clozeline.masking.mask import MaskOptions, mask
from clozeline.run.stage import RunOptions


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """100 rows in 3 shards."""
    return write_packed(tmp_path / "packed", [40, 23, 37])


@pytest.fixture
def masked(tmp_path: Path, packed: Path) -> Path:
    """The same, masked twice with seed 11."""
    options = MaskOptions(seed=11, copies=2, rule=MaskRule(mask_prob=0.4))
    mask(packed, tmp_path / "masked", options, RunOptions(executor="serial"))
    return tmp_path / "masked"
