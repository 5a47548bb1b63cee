"""One of several processes: evaluates in several ways and writes what it got. Run by test_processes.py."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

import clozeline
from clozeline.evaluation.ranks import join, leave, process_rank


class Dies(torch.nn.Module):
    """A model whose process is killed when it has computed so many batches, as if the machine had gone."""

    def __init__(self, inner: Any, after: int) -> None:
        super().__init__()
        self.inner, self.left = inner, after

    def forward(self, input_ids: torch.Tensor, **more: torch.Tensor) -> Any:
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        return self.inner(input_ids, **more)


def lose(prepared: Path, out: Path, lost: int, after: int, model: Path) -> None:
    """Evaluates once; process `lost` is killed on the way."""
    join()
    loaded: Any = transformers.AutoModelForMaskedLM.from_pretrained(model)
    if process_rank() == lost:
        loaded = Dies(loaded, after)
    found = clozeline.assess(prepared / "masked", loaded, clozeline.AssessOptions(batch_rows=2))
    (out / f"{process_rank()}.json").write_text(json.dumps(found.to_json()))
    leave()


def main(prepared: Path, out: Path, models: list[Path]) -> None:
    join()
    rank = process_rank()
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
                ways = {"static": static, "on the fly": on_the_fly}
                if batch_rows == 7:
                    options = clozeline.AssessOptions(compute=clozeline.EvaluateOptions(documents_apart=True), **common)
                    ways["apart"] = clozeline.assess(prepared / "masked", model, options)
                for name, found in ways.items():
                    body = found.result.to_json()
                    how = ("seconds", "rows_per_second", "tokens_per_second", "processes")
                    key = f"{model.name}, {name}, batch {batch_rows}, limit {limit}"
                    results[key] = {k: v for k, v in body.items() if k not in how}
    (out / f"{rank}.json").write_text(json.dumps(results))
    leave()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[3] == "lose":
        lose(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6]))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(path) for path in sys.argv[3:]])
