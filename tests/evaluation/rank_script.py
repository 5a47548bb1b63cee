"""One of several processes: evaluates in several ways and writes what it got. Run by test_processes.py."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

import clozeline
from clozeline.evaluation.ranks import join, leave, process_rank


def main(prepared: Path, out: Path, lost: int, models: list[Path]) -> None:
    torch.set_num_threads(1)
    join()
    rank = process_rank()
    if rank == lost:
        os._exit(1)  # as if the machine had gone
    results = {}
    for model in models:
        for batch_rows in (1, 2, 7, 64):
            for limit in (None, 19):
                common = {"batch_rows": batch_rows, "limit_rows": limit, "device": "cpu"}
                static = clozeline.assess(prepared / "masked", model, clozeline.AssessOptions(**common))
                masking = clozeline.Masking(seed=7)
                on_the_fly = clozeline.assess(
                    prepared / "packed", model, clozeline.AssessOptions(masking=masking, epochs=2, **common)
                )
                apart = clozeline.assess(
                    prepared / "masked",
                    model,
                    clozeline.AssessOptions(compute=clozeline.EvaluateOptions(documents_apart=True), **common),
                )
                for name, found in (("static", static), ("on the fly", on_the_fly), ("apart", apart)):
                    body = found.result.to_json()
                    how = ("seconds", "rows_per_second", "tokens_per_second", "processes")
                    key = f"{model.name}, {name}, batch {batch_rows}, limit {limit}"
                    results[key] = {k: v for k, v in body.items() if k not in how}
    (out / f"{rank}.json").write_text(json.dumps(results))
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [Path(path) for path in sys.argv[4:]])
