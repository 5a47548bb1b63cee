"""Runs clozeline on a dask cluster of three workers in separate processes, each in a network namespace with an address of its own
(root and iproute2; else on the loopback interface), and ends them again.

python benchmarks/cases/dask_run.py ARGUMENTS OF CLOZELINE
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "run"))
from cluster import cluster, namespaces_can_be_made


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(Path(folder) / "c", 3, apart=namespaces_can_be_made()) as made,
    ):
        argv = [*made.prefix, sys.executable, "-m", "clozeline", *sys.argv[1:]]
        argv += ["--executor", "dask", "--dask-scheduler-file", str(made.scheduler_file)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
