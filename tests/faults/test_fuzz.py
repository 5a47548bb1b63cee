"""Bytes that nobody wrote on purpose: every reader ends with documents, rows, or an error of ours.

The long run is `fuzz.py`; here each target gets what it once failed on, the beginnings of its good files, and some mutations.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_targets import TARGETS, seeds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

INPUTS = Path(__file__).parent / "inputs"
PIECES = [b"[" * 2000, b"9" * 5000, b"\\ud800", b"\n<doc "]
KEPT = sorted(p.name for p in INPUTS.iterdir())


@pytest.mark.parametrize("name", KEPT)
def test_what_once_was_a_fault_is_none(tmp_path: Path, name: str) -> None:
    target = name.partition("-")[0]
    seeds(target, tmp_path)
    TARGETS[target](tmp_path, (INPUTS / name).read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_good_files_and_their_beginnings_are_read_or_refused(tmp_path: Path, name: str) -> None:
    for data in seeds(name, tmp_path):
        for length in {0, 1, 4, 8, len(data) // 4, len(data) // 2, len(data) - 8, len(data) - 1, len(data)}:
            TARGETS[name](tmp_path, data[: max(length, 0)])


@pytest.fixture
def good(tmp_path: Path, name: str) -> list[bytes]:
    return seeds(name, tmp_path)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("name", TARGETS)
def test_mutations_are_read_or_refused(tmp_path: Path, name: str, good: list[bytes], data: st.DataObject) -> None:
    result = bytearray(data.draw(st.sampled_from(good)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(result)))
        cut = data.draw(st.sampled_from([0, 0, 1, 4, 50]))
        result[at : at + cut] = data.draw(st.binary(max_size=9) | st.sampled_from(PIECES))
    TARGETS[name](tmp_path, bytes(result))
