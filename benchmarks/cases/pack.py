"""Packs text shards by one scheme in this process and prints the packing report on one line.

python benchmarks/cases/pack.py TEXT DEST TOKENIZER SCHEME [OPTION=VALUE ...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import clozeline
from clozeline.store.dataset import Data

TEXT, DEST, TOKENIZER, SCHEME, *GIVEN = sys.argv[1:]


def main() -> None:
    options = {name: json.loads(value) for name, value in (pair.split("=") for pair in GIVEN)}
    clozeline.pack(
        TEXT,
        DEST,
        TOKENIZER,
        clozeline.PackOptions(packing=SCHEME, **options),
        clozeline.RunOptions(executor="serial"),
    )
    report = clozeline.packing_report(Data(Path(DEST)))
    figures = {
        "text_tokens": report.text_tokens,
        "rows": report.rows,
        "fill_percent": 100 * report.fill,
        "documents_cut": report.documents_cut,
        "documents_per_row": report.documents_per_row,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
