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


def packed_columns(row_length: int, vocabulary_size: int) -> dict[str, pa.DataType]:
    return {
        "input_ids": pa.list_(pa.from_numpy_dtype(id_dtype(vocabulary_size)), row_length),
        "attention_mask": pa.list_(pa.uint8(), row_length),
        "num_tokens": pa.uint16(),
    }


def masked_columns(row_length: int, vocabulary_size: int) -> dict[str, pa.DataType]:
    labels = pa.list_(pa.from_numpy_dtype(label_dtype(vocabulary_size)), row_length)
    return {**packed_columns(row_length, vocabulary_size), "labels": labels}


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
