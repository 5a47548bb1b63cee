"""Memory of the stream over numbers of rows and of workers, beyond the pages that are mapped from files.

    python benchmarks/stream_memory.py

Each case is a process of its own: a shuffled pass over (the first `BATCHES` batches of) a data set of `LENGTH` tokens a row in 16
shards. In the middle of the pass the memory of all processes is read from the kernel (proportional set sizes: what processes
share is counted once) and printed in MiB: anonymous memory with the imports done and nothing opened, the same of all processes
now, the shared memory that batches travel in, and the pages mapped from files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import stream
from harness import ROOT

CASES = ((1_000_000, 0), (10_000_000, 0), (1_000_000, 1), (1_000_000, 2), (1_000_000, 4), (10_000_000, 4))
LENGTH, BATCHES = 32, 3000


def data(rows: int) -> Path:
    def write(path: Path) -> None:
        stream.write_packed(path, np.broadcast_to(np.arange(LENGTH, dtype=np.uint16) + 5, (rows, LENGTH)))

    return stream.once(f"memory-{rows}", write)


def memory(pid: int) -> dict[str, int]:
    """Proportional set sizes of a process, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    fields = dict(line.split(":") for line in lines if line.startswith("Pss_"))
    return {name: int(value.split()[0]) * 1024 for name, value in fields.items()}


def one_case(rows: int, workers: int) -> None:
    import torch

    import clozeline

    torch.set_num_threads(1)
    tokens = clozeline.TokenStream(data(rows), batch_size=256)
    before = memory(os.getpid())["Pss_Anon"]
    for number, _ in enumerate(clozeline.TokenLoader(tokens, num_workers=workers), 1):
        if number == BATCHES:
            children = [int(p) for t in Path("/proc/self/task").glob("*/children") for p in t.read_text().split()]
            found = [memory(pid) for pid in (os.getpid(), *children)]
            break
    total = {name: sum(m[name] for m in found) for name in found[0]}
    figures = {
        "rows": rows,
        "workers": workers,
        "imports": before,
        "anonymous": total["Pss_Anon"],
        "shared": total["Pss_Shmem"],
        "mapped": total["Pss_File"],
    }
    print(json.dumps(figures))


def main() -> None:
    for rows, _ in CASES:
        data(rows)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pipeline")}
    heads = ["rows", "workers", "imports", "anonymous", "shared", "mapped"]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for rows, workers in CASES:
        argv = [sys.executable, __file__, "--case", str(rows), str(workers)]
        found = json.loads(subprocess.run(argv, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)
        cells = [f"{found[h]:,}" if h in ("rows", "workers") else f"{found[h] / 2**20:.1f}" for h in heads]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        one_case(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
