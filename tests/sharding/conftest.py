from __future__ import annotations

from pathlib import Path

import pytest
from sharder import Sharder


@pytest.fixture
def sharder(tmp_path: Path) -> Sharder:
    return Sharder(tmp_path / "made")
