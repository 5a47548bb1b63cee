"""Text shards to rows of 512 by every scheme, against the group_texts recipe; and each scheme on four times as many documents.

python benchmarks/packing.py [--only packing-20mb] [--repeats 3]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from harness import (
    HERE,
    PEERS,
    RESULTS,
    Case,
    Subject,
    english_text,
    installed,
    main,
    multiplied,
    ours,
    scratch,
    script,
    tokenizer_folder,
)

TOKENIZER = str(tokenizer_folder())
SCHEMES = ("concat", "best-fit", "documents", "sentences", "doc-sentences", "pairs")


def text_shards(source: Path) -> str:
    """The text shards of a corpus."""
    made = scratch() / f"{source.stem}_text"
    arguments = ours("shard", str(source), str(made), "--documents", "blank-lines", "--force", "-q")
    subprocess.run(
        arguments,
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(HERE.parent / "pipeline")},
    )
    return str(made)


def subject(name: str, title: str, source: Path, *, peers: bool) -> Subject:
    text = text_shards(source)
    cases = [
        Case(
            name=f"clozeline pack --packing {scheme}",
            argv=script(HERE / "cases" / "pack.py", text, "{out}", TOKENIZER, scheme),
            role="ours",
        )
        for scheme in SCHEMES
        if scheme in ("concat", "best-fit", "documents") or installed("sentencex")
    ]
    if peers:
        recipe = script(PEERS / "group_texts.py", text, "{out}", TOKENIZER)
        cases.append(Case(name="Hugging Face group_texts recipe", argv=recipe))
    return Subject(name=name, title=title, cases=tuple(cases), items=("bytes", float(source.stat().st_size)))


def growth(small: Path, large: Path) -> str:
    """How time and memory grow with four times the documents, as a table."""
    before, after = (json.loads(path.read_text())["cases"] for path in (small, large))
    figures = {case["name"]: case["median"] for case in before}
    lines = ["| four times the documents | time | CPU time | memory |", "|---|---|---|---|"]
    for case in after:
        if case["name"] in figures:
            ratios = (case["median"][key] / figures[case["name"]][key] for key in ("wall", "cpu", "memory"))
            lines.append(f"| {case['name']} | " + " | ".join(f"x {ratio:.2f}" for ratio in ratios) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    corpus = english_text()
    main(
        subject("packing-20mb", "20 MB of English in text shards to rows of 512, one process", corpus, peers=True),
        subject("packing-80mb", "The same text four times in other orders", multiplied(corpus, 4), peers=False),
    )
    results = [RESULTS / f"packing-{size}.json" for size in ("20mb", "80mb")]
    if all(path.is_file() for path in results) and "--out" not in sys.argv:
        print(growth(*results))
