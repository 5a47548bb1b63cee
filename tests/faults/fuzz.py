"""Fuzzes one target of `fuzz_targets.py` with atheris (libFuzzer: mutations led by the lines that they reach).

    pip install atheris
    PYTHONPATH=pipeline python tests/faults/fuzz.py TARGET [-max_total_time=SECONDS] [any other option of libFuzzer]

It begins with the target's seeds and with what tests/faults/inputs keeps for it, and ends at the first fault (also a crash, or
more than ten seconds for one input), whose input it leaves there as TARGET-crash-DIGEST: mend it, and keep the input for the test.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))
with atheris.instrument_imports(include=["clozeline", "fuzz_targets"]):
    from fuzz_targets import TARGETS, seeds

INPUTS = Path(__file__).parent / "inputs"


def main() -> None:
    name, options = sys.argv[1], sys.argv[2:]
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder, corpus = Path(temporary) / "work", Path(temporary) / "corpus"
        folder.mkdir()
        corpus.mkdir()
        for i, data in enumerate([*seeds(name, folder), *(p.read_bytes() for p in sorted(INPUTS.glob(f"{name}-*")))]):
            (corpus / str(i)).write_bytes(data)
        limits = [
            "-max_len=20000",
            "-timeout=10",
            "-rss_limit_mb=4096",
            f"-artifact_prefix={INPUTS}/{name}-",
            "-print_final_stats=1",
        ]
        atheris.Setup([sys.argv[0], *limits, *options, str(corpus)], lambda data: target(folder, data))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
