"""What a dask cluster costs: `clozeline run` on three worker processes, on a local cluster of three workers, and on a scheduler
and three workers that are separate processes in network namespaces. Scheduler and workers start and end with each run, and count.

python benchmarks/dask_cluster.py [--only cluster-80mb] [--repeats 3]
"""

from __future__ import annotations

from harness import HERE, Case, Subject, english_text, installed, main, multiplied, ours, script, tokenizer_folder


def subject(name: str, title: str, times: int, engine: str) -> Subject:
    text = multiplied(english_text(), times)
    work = ("run", str(text), "{out}", "--documents", "blank-lines", "--tokenizer", str(tokenizer_folder()))
    work += ("--engine", engine, "--num-shards", str(6 * times), "-j", "3")
    cases = (
        Case(name="three worker processes", argv=ours(*work, "--executor", "processes"), role="ours"),
        Case(name="a local dask cluster", argv=ours(*work, "--executor", "dask")),
        Case(name="three workers in network namespaces", argv=script(HERE / "cases" / "dask_run.py", *work)),
    )
    return Subject(name=name, title=title, cases=cases, items=("bytes", float(text.stat().st_size)))


if __name__ == "__main__" and installed("distributed"):
    main(
        subject("cluster-80mb", "80 MB of English by the engine of `tokenizers` on a cluster", 4, "tokenizers"),
        subject("cluster-160mb", "160 MB of English by the fastest engine there is on a cluster", 8, "auto"),
        warm_up=0,
    )
