"""What every test may use: tiny tokenizers made on the spot, small corpora, and the shared data where it is at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"

os.environ["PYTHONPATH"] = str(ROOT / "pipeline")  # for the processes that tests start
os.environ["HF_HUB_OFFLINE"] = "1"

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_wordpiece(folder: Path, words: list[str], **changes: object) -> Path:
    """A WordPiece tokenizer directory with this vocabulary after the five special tokens."""
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *words])}
    added = [
        {
            "id": vocabulary[t],
            "content": t,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for t in SPECIAL
    ]
    special = {t: {"id": t, "ids": [vocabulary[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")}
    single = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    body = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    } | changes
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(body))
    roles = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **roles}))
    return folder


LETTERS = list("abcdefghijklmnopqrstuvwxyz0123456789.,!?-'()[]<>/|#")


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A character tokenizer for lower-case ASCII: every letter is a token, within a word with ## before it."""
    words = [*LETTERS, *(f"##{c}" for c in LETTERS), "the", "and", "##ing"]
    return write_wordpiece(tmp_path_factory.mktemp("tokenizer"), words)


@pytest.fixture(scope="session")
def make_wordpiece() -> Callable[..., Path]:
    """`write_wordpiece`, for tests that need a vocabulary of their own."""
    return write_wordpiece


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Forty short documents of different lengths, one a line."""
    path = tmp_path / "corpus.txt"
    lines = [f"document {i} " + " ".join(f"word{(i * 7 + k) % 23}" for k in range(i % 9 * 3)) for i in range(40)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real corpora and published vocabularies; tests that need them skip where they are absent."""
    if not SHARED.is_dir():
        pytest.skip("the shared corpora and vocabularies are not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which s3:// leads to a server of our own."""
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    code = (
        "import time\nfrom moto.server import ThreadedMotoServer\nserver = ThreadedMotoServer(port=0)\nserver.start()\n"
        "print(server.get_host_and_port()[1], flush=True)\ntime.sleep(1800)"
    )
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as err:
        server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=err, text=True)
    try:
        assert server.stdout is not None
        port = next(line for line in server.stdout if line.strip().isdigit()).strip()
        url = f"http://127.0.0.1:{port}"
        for _ in range(100):
            try:
                urllib.request.urlopen(url, timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        yield {
            **os.environ,
            "AWS_ENDPOINT_URL": url,
            "FSSPEC_S3_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.kill()
        server.communicate()
