from __future__ import annotations

from pathlib import Path

import pytest
from stages import Stages


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Stages:
    return Stages(tmp_path_factory.mktemp("stages"), tokenizer)
