"""The mask function beside the collators of `transformers` and a plain numpy masker, on the same packed rows, one thread.

    python benchmarks/mask.py work/packed --rows 8192 --repeats 5

Every masker takes blocks of 256 rows that are in memory already and gives masked ids and labels; the maskers take turns, and what
counts is the ratio of medians within one run. Seconds are those of the processor, so that others on the machine disturb little.
The last line is the whole stage, `clozeline mask`, from disk to disk.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import clozeline
from clozeline.mask_function import MaskRule, mask_rows
from clozeline.store.dataset import Data
from clozeline.store.masks import mask_vocabulary
from harness import english_rows, record

BLOCK = 256
Masker = Callable[[np.ndarray, int], object]


def ours(data: Data, rule: MaskRule) -> Masker:
    facts = data.metadata.tokenizer
    assert facts is not None
    vocabulary = mask_vocabulary(facts, rule)

    def run(ids: np.ndarray, first: int) -> object:
        rows, shards = np.arange(first, first + len(ids)), np.zeros(len(ids), np.int64)
        return mask_rows(ids, rule, vocabulary, seed=1, copy=0, shards=shards, rows=rows, label_dtype=np.int16)

    return run


def collator_as_used(tokenizer: Any) -> Masker:
    """What a DataLoader does: a list of dicts of lists."""
    collate = transformers.DataCollatorForLanguageModeling(tokenizer)

    def run(ids: np.ndarray, first: int) -> object:
        return collate([{"input_ids": row} for row in ids.tolist()])

    return run


def whole_word_collator(tokenizer: Any, data: Data) -> Masker:
    """The collator finds words by the offsets of tokens, which a tokenizer would have given it: made before the clock starts."""
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True)
    facts = data.metadata.tokenizer
    assert facts is not None
    vocabulary = mask_vocabulary(facts, MaskRule())
    assert vocabulary.continuing is not None
    known: dict[int, list[dict[str, Any]]] = {}

    def features(ids: np.ndarray) -> list[dict[str, Any]]:
        rows = []
        for row in ids:
            begins = np.cumsum(1 + ~vocabulary.continuing[row])  # a blank before every word
            offsets = np.where(vocabulary.maskable[row][:, None], np.stack([begins, begins + 1], axis=1), 0)
            rows.append({"input_ids": row.tolist(), "offset_mapping": offsets.tolist()})
        return rows

    def run(ids: np.ndarray, first: int) -> object:
        return collate([dict(row) for row in known[first]])

    run.prepare = lambda ids, first: known.setdefault(first, features(ids))  # type: ignore[attr-defined]
    return run


def mask_step(tokenizer: Any) -> Masker:
    """Its mask step alone, on one stacked block with the special positions known."""
    collate = transformers.DataCollatorForLanguageModeling(tokenizer)
    special = torch.tensor(sorted(tokenizer.all_special_ids))

    def run(ids: np.ndarray, first: int) -> object:
        block = torch.from_numpy(ids.astype(np.int64))
        return collate.torch_mask_tokens(block, special_tokens_mask=torch.isin(block, special))

    return run


def plain_numpy(data: Data) -> Masker:
    """One draw a token from a generator that remembers: no identity, no replay; a limit for what numpy can do."""
    facts = data.metadata.tokenizer
    assert facts is not None
    table, generator = mask_vocabulary(facts, MaskRule()).maskable, np.random.default_rng(0)

    def run(ids: np.ndarray, first: int) -> object:
        draw = generator.random(ids.shape, np.float32)
        selected = (draw < 0.15) & table[ids]
        labels = np.where(selected, ids.astype(np.int16), np.int16(-100))
        masked = ids.copy()
        masked[selected & (draw < 0.12)] = facts.mask_id
        random = selected & (draw >= 0.12) & (draw < 0.135)
        masked[random] = generator.integers(0, facts.vocabulary_size, int(random.sum()))
        return masked, labels

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packed", nargs="?", help="a packed data set  [default: made of the benchmarks' English text]")
    parser.add_argument("--rows", type=int, default=8192, help="for the fast maskers; the slow ones get a part of them")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    packed = Path(args.packed or english_rows() / "packed")
    data = Data(packed, "packing")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=f"{data.tokenizer_path}/tokenizer.json",
        **dict(zip(("unk_token", "sep_token", "pad_token", "cls_token", "mask_token"), NAMES, strict=True)),
    )
    there = np.concatenate(
        [b["input_ids"] for i in range(len(data.manifest.shards)) for b in data.shard(i).batches("input_ids")]
    )
    ids = np.resize(there, (args.rows, there.shape[1]))
    maskers: dict[str, tuple[Masker, int]] = {
        "clozeline, tokens": (ours(data, MaskRule()), 1),
        "clozeline, tokens, exact": (ours(data, MaskRule(selection="exact")), 1),
        "clozeline, whole words": (ours(data, MaskRule(unit="word")), 1),
        "clozeline, whole words, exact": (ours(data, MaskRule(unit="word", selection="exact")), 2),
        "clozeline, spans": (ours(data, MaskRule(unit="span")), 2),
        "clozeline, spans, exact": (ours(data, MaskRule(unit="span", selection="exact")), 2),
        "numpy, one draw a token": (plain_numpy(data), 1),
        "collator as people use it": (collator_as_used(tokenizer), 16),
        "its mask step on a stacked block": (mask_step(tokenizer), 2),
        "whole-word collator": (whole_word_collator(tokenizer, data), 32),
    }
    speeds: dict[str, list[float]] = {name: [] for name in maskers}
    for repeat in range(args.repeats + 1):  # the first round warms up
        for name, (masker, part) in maskers.items():
            rows = max(BLOCK, args.rows // part)
            if not repeat and hasattr(masker, "prepare"):
                for first in range(0, rows, BLOCK):
                    masker.prepare(ids[first : first + BLOCK], first)
            start = time.process_time()
            for first in range(0, rows, BLOCK):
                masker(ids[first : first + BLOCK], first)
            if repeat:
                speeds[name].append(rows / (time.process_time() - start))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    with tempfile.TemporaryDirectory() as folder:
        stage = []
        for repeat in range(args.repeats):
            start = time.process_time()
            options = clozeline.MaskOptions(seed=repeat)
            run = clozeline.RunOptions(executor="serial", force=True)
            result = clozeline.mask(packed, Path(folder) / "masked", options, run)
            stage.append(result.rows / (time.process_time() - start))
        medians["clozeline mask, disk to disk, one process"] = statistics.median(stage)
    used, step = medians["collator as people use it"], medians["its mask step on a stacked block"]
    words = medians["whole-word collator"]
    figures = {
        name: {"rows/s": value, "x as used": value / used, "x mask step": value / step, "x whole-word": value / words}
        for name, value in medians.items()
    }
    print(record("mask", "Masking rows of 512 in memory, rows per second of CPU, one thread", figures, args.repeats))


NAMES = ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")

if __name__ == "__main__":
    main()
