"""Peer: the Hugging Face recipe for masked-language-model data, at settings chosen for speed.

    python hugging_face.py TEXT OUT --tokenizer FOLDER [--static] [--processes 2]

`load_dataset` -> `map(tokenize)` -> `map(concatenate and cut)` [-> `map(DataCollatorForLanguageModeling)`] -> `save_to_disk`.
Settings that make it fast: paragraphs as documents, batches of 1000, only ids kept, numpy between the steps, one block for the
collator, one thread a process. TEXT has a blank line between documents.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import datasets
import numpy as np
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

LENGTH = 512
ROW = datasets.List(datasets.Value("int32"), length=LENGTH)
BATCH = 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--static", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15, return_tensors="np", seed=1)

    def tokenize(batch: dict[str, Any]) -> dict[str, Any]:
        encoded = tokenizer(batch["text"], return_attention_mask=False, return_token_type_ids=False, verbose=False)
        return {"input_ids": encoded["input_ids"]}

    def cut(batch: dict[str, Any]) -> dict[str, Any]:
        ids = np.concatenate(batch["input_ids"])
        return {"input_ids": ids[: len(ids) // LENGTH * LENGTH].reshape(-1, LENGTH)}

    def mask(batch: dict[str, Any]) -> dict[str, Any]:
        masked = collator([{"input_ids": row} for row in batch["input_ids"]])
        return {"input_ids": masked["input_ids"], "labels": masked["labels"]}

    text = datasets.load_dataset(
        "text", data_files=options.text, split="train", sample_by="paragraph", cache_dir=str(options.out / "cache")
    )
    common: dict[str, Any] = {"batched": True, "batch_size": BATCH, "num_proc": options.processes}
    ids = datasets.Features({"input_ids": datasets.List(datasets.Value("int32"))})
    data = text.map(tokenize, remove_columns=text.column_names, features=ids, **common)
    data = data.with_format("numpy").map(cut, features=datasets.Features({"input_ids": ROW}), **common)
    if options.static:
        data = data.map(mask, features=datasets.Features({"input_ids": ROW, "labels": ROW}), **common)
    data.save_to_disk(options.out / "rows")
    print(json.dumps({"rows": len(data)}))


if __name__ == "__main__":
    main()
