"""A tokenizer of whole words, so that a document of any number of tokens is quickly written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory, make_wordpiece: Callable[..., Path]) -> Path:
    """Knows w0 to w299, each a token."""
    return make_wordpiece(tmp_path_factory.mktemp("words"), [f"w{i}" for i in range(300)])
