"""Prepares text corpora for masked-language-model pretraining.

    import clozeline

    clozeline.prepare("corpus.txt", "work", "path/to/tokenizer")
    stream = clozeline.TokenStream("work/packed", batch_size=32, transform=clozeline.Masking(seed=1))

Public names are loaded when they are first used: importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "assess": "assessment",
    "Assessment": "assessment",
    "AssessOptions": "assessment",
    "ConfigError": "errors",
    "ClozelineError": "errors",
    "DataError": "errors",
    "DestinationError": "errors",
    "InputError": "errors",
    "Interrupted": "errors",
    "JobError": "errors",
    "LedgerError": "errors",
    "TokenizerError": "errors",
    "compare": "evaluation.compare",
    "Comparison": "evaluation.compare",
    "evaluate": "evaluation.evaluate",
    "EvaluateCallback": "training",
    "EvaluateOptions": "evaluation.evaluate",
    "EvaluateProgress": "evaluation.evaluate",
    "EvaluateResult": "evaluation.result",
    "MaskRule": "mask_function",
    "Masking": "masking.transform",
    "MaskOptions": "masking.mask",
    "mask": "masking.mask",
    "TokenCounts": "store.masks",
    "token_counts": "masking.counts",
    "PackOptions": "packing.options",
    "pack": "packing.pack",
    "PackingReport": "packing.report",
    "packing_report": "packing.report",
    "prepare": "preparation",
    "PrepareResult": "preparation",
    "Profile": "run.stage",
    "Progress": "run.stage",
    "RunOptions": "run.stage",
    "StageResult": "run.stage",
    "CleanOptions": "sharding.options",
    "ReadOptions": "sharding.options",
    "SelectOptions": "sharding.options",
    "ShardOptions": "sharding.shard",
    "shard": "sharding.shard",
    "VocabOptions": "vocabulary.train",
    "VocabResult": "vocabulary.train",
    "vocab": "vocabulary.train",
    "BlockDiagonalMask": "streaming.boundaries",
    "ResetPositions": "streaming.boundaries",
    "Unpadded": "streaming.boundaries",
    "Chain": "streaming.chain",
    "CacheOptions": "streaming.cache",
    "StreamOptions": "streaming.stream",
    "TokenDataset": "streaming.dataset",
    "TokenLoader": "streaming.loader",
    "TokenStream": "streaming.stream",
    "Check": "verification.findings",
    "VerifyResult": "verification.findings",
    "verify": "verification.verify",
    "verify_foreign": "verification.foreign",
    "load_tokenizer": "packing.tokenizer",
}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'clozeline' has no attribute {name!r}")
    return getattr(importlib.import_module(f"clozeline.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
