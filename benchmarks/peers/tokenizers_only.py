"""Floor: tokenizes and does nothing else.

    python tokenizers_only.py TEXT --tokenizer FOLDER [--engine tokenizers|nanotoken] [--threads 2]

Reports seconds and CPU seconds of the tokenizing itself (`seconds`, `cpu_seconds`), apart from process start, imports and reading.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--engine", choices=["tokenizers", "nanotoken"], default="tokenizers")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if options.threads > 1 else "false"
    documents = [d for d in options.text.read_bytes().split(b"\n\n") if d.strip()]
    tokens = 0
    if options.engine == "tokenizers":
        from tokenizers import Tokenizer

        slow: Any = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
        slow.no_truncation()
        texts = [d.decode() for d in documents]
        start, cpu = time.perf_counter(), time.process_time()
        for i in range(0, len(texts), 1000):
            tokens += sum(len(e) for e in slow.encode_batch_fast(texts[i : i + 1000], add_special_tokens=False))
    else:
        import nanotoken

        fast = nanotoken.Tokenizer.from_json((options.tokenizer / "tokenizer.json").read_text())
        start, cpu = time.perf_counter(), time.process_time()
        for i in range(0, len(documents), 4000):
            batch = documents[i : i + 4000]
            tokens += len(fast.encode_batch(batch, add_special_tokens=False, parallel=options.threads > 1).ids)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps({"tokens": tokens, "seconds": seconds, "cpu_seconds": cpu}))


if __name__ == "__main__":
    main()
