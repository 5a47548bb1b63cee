"""The tokenize-and-group recipe of Hugging Face's language-modelling examples, on the documents of text shards.

Each document is tokenized with its special tokens; batches of 1,000 documents are put end to end and cut into blocks of L
tokens, the rest of each batch being dropped.

python benchmarks/peers/group_texts.py TEXT DEST TOKENIZER [--length 512]
"""

from __future__ import annotations

import argparse
import json
from itertools import chain
from typing import Any

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("dest")
    parser.add_argument("tokenizer")
    parser.add_argument("--length", type=int, default=512)
    options = parser.parse_args()

    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer, use_fast=True)
    texts = datasets.load_from_disk(options.text).select_columns(["text"])
    lengths: list[int] = []

    def tokenize(batch: dict[str, list[str]]) -> Any:
        return tokenizer(batch["text"], return_special_tokens_mask=True, verbose=False)

    def group(batch: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        lengths.extend(map(len, batch["input_ids"]))
        joined = {name: list(chain.from_iterable(values)) for name, values in batch.items()}
        total = len(joined["input_ids"]) // options.length * options.length
        return {
            name: [values[i : i + options.length] for i in range(0, total, options.length)]
            for name, values in joined.items()
        }

    tokenized = texts.map(tokenize, batched=True, remove_columns=["text"], load_from_cache_file=False)
    grouped = tokenized.map(group, batched=True, load_from_cache_file=False)
    grouped.save_to_disk(options.dest)

    # What became of the documents follows from their lengths.
    cut = dropped = parts = 0
    for first in range(0, len(lengths), 1000):
        ends = np.cumsum(lengths[first : first + 1000])
        starts = ends - lengths[first : first + 1000]
        kept = int(ends[-1]) // options.length * options.length
        inside = starts < kept
        ends = np.minimum(ends, kept)
        rows = (ends - 1) // options.length - starts // options.length + 1
        cut += int((inside & ((rows > 1) | (ends < starts + lengths[first : first + 1000]))).sum())
        parts += int(rows[inside].sum())
        dropped += int((starts + lengths[first : first + 1000])[-1] - kept)
    special = 2 * len(lengths)
    figures = {
        "text_tokens": sum(lengths) - special - dropped,
        "rows": len(grouped),
        "fill_percent": 100.0,
        "documents_cut": cut,
        "documents_per_row": parts / max(1, len(grouped)),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
