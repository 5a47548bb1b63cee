"""Columns of each stage, as Arrow schemas that `datasets` understands too.

Shapes: L positions per row.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from clozeline.store.manifest import Metadata, canonical_json

if TYPE_CHECKING:
    import numpy.typing as npt

KEY = b"clozeline"
MAX_ROW_LENGTH = 8192
PAIR_LABELS = {"nsp": "next_sentence_label", "sop": "sentence_order_label"}  # as the models of each objective name them


def id_dtype(vocabulary_size: int) -> npt.DTypeLike:
    """uint16 where every id fits, else uint32; by the largest id that exists, not by what a configuration claims."""
    return np.uint16 if vocabulary_size <= 2**16 else np.uint32


def label_dtype(vocabulary_size: int) -> npt.DTypeLike:
    """int16 where every id fits, else int32: labels are signed, for -100."""
    return np.int16 if vocabulary_size <= 2**15 else np.int32


def rows_per_batch(row_length: int) -> int:
    """Rows in every record batch of a shard but its last: 2**19 positions, a megabyte of uint16 ids."""
    return max(1, 2**19 // row_length)


def text_columns() -> dict[str, pa.DataType]:
    return {"doc_id": pa.string(), "text": pa.large_string()}


def packed_columns(metadata: Metadata, row_length: int | None = None) -> dict[str, pa.DataType]:
    """Columns of packed rows, by how they were packed.

    Args:
        metadata: of the packed data, or of what was made of it.
        row_length: L where the data has rows of several lengths.
    """
    assert metadata.tokenizer is not None
    length = row_length or metadata.row_length
    config = metadata.config_of("packing")
    columns = {
        "input_ids": pa.list_(pa.from_numpy_dtype(id_dtype(metadata.tokenizer.vocabulary_size)), length),
        "attention_mask": pa.list_(pa.uint8(), length),
        "num_tokens": pa.uint16(),
    }
    if config.get("packing") == "pairs":
        columns["token_type_ids"] = pa.list_(pa.uint8(), length)
        columns[PAIR_LABELS[config["objective"]]] = pa.uint8()
    if config.get("word_starts"):
        columns["word_starts"] = pa.list_(pa.uint8(), length)  # bytes: bits could not be read in place
    if config.get("boundaries"):
        # Of one width, filled up with 0, so that a row is still found by arithmetic.
        columns["document_lengths"] = pa.list_(pa.uint16(), config["document_slots"])
    return columns


def masked_columns(metadata: Metadata, row_length: int | None = None) -> dict[str, pa.DataType]:
    """Those of the packed rows, and the labels."""
    assert metadata.tokenizer is not None
    labels = pa.from_numpy_dtype(label_dtype(metadata.tokenizer.vocabulary_size))
    return {**packed_columns(metadata, row_length), "labels": pa.list_(labels, row_length or metadata.row_length)}


def sparse_columns(metadata: Metadata, slots: int) -> dict[str, pa.DataType]:
    """What a mask changed in the packed rows, in so many slots a row: of one width, so that a row is still found by arithmetic."""
    assert metadata.tokenizer is not None
    ids = pa.from_numpy_dtype(id_dtype(metadata.tokenizer.vocabulary_size))
    return {
        "num_selected": pa.uint16(),
        "positions": pa.list_(pa.uint16(), slots),
        "masked_ids": pa.list_(ids, slots),
    }


def features(columns: dict[str, pa.DataType]) -> dict[str, Any]:
    """The columns in the spelling of `datasets.Features.to_dict()`."""

    def feature(kind: pa.DataType) -> dict[str, Any]:
        if pa.types.is_fixed_size_list(kind):
            return {"feature": feature(kind.value_type), "length": kind.list_size, "_type": "List"}
        if pa.types.is_list(kind):
            return {"feature": feature(kind.value_type), "_type": "List"}
        return {"dtype": str(kind), "_type": "Value"}

    return {name: feature(kind) for name, kind in columns.items()}


def shard_schema(columns: dict[str, pa.DataType], metadata: Metadata, *, copy: int, shard: int) -> pa.Schema:
    """The schema of one shard; its metadata says what the shard is and lets `datasets` open the file on its own."""
    return pa.schema(
        list(columns.items()),
        metadata={
            KEY: canonical_json({**metadata.to_json(), "copy": copy, "shard": shard}).encode(),
            b"huggingface": json.dumps({"info": {"features": features(columns)}}).encode(),
        },
    )
