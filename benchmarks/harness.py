"""Times whole processes, ours and others', in turn within one run, and keeps what was measured as JSON.

    python benchmarks/harness.py benchmarks/results/*.json      # the results as tables

A benchmark is a script with a list of `Case`s and a call of `main`. Cases are run one after another, round after round, each round
beginning with another case, so that a machine that slows down for a while slows down all of them. What counts is the ratio of
medians within one run; seconds depend on the machine and on who else uses it.

Measured for each process, with everything that it starts:
    wall            seconds from start to exit
    cpu             seconds, user and system, of all descendants
    memory          MB at the worst moment: proportional set size of the tree (a page shared by n processes counts 1/n in each)
    written         MB handed to the file system (`write_bytes` of /proc/PID/io)
    output          MB in the case's output folder afterwards
and every number in the JSON object that a case may print as its last line (rows, seconds of an inner loop, ...).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
PEERS = HERE / "peers"
_POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Case:
    """One command to time.

    Attributes:
        name: as the table shows it.
        argv: the command; "{out}" in it stands for a fresh folder, removed before and after.
        role: "ours", "peer" or "floor" (less work than the task, as a limit).
        environment: variables that are set for it.
        exit_code: what it must end with; anything else stops the benchmark.
    """

    name: str
    argv: tuple[str, ...]
    role: str = "peer"
    environment: dict[str, str] = field(default_factory=dict)
    exit_code: int = 0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a benchmark compares.

    Attributes:
        name: of the results file.
        title: one sentence: the work, and how much of it.
        cases: ratios are taken against the first, which is ours.
        items: what is counted, (unit, number): the table shows units per second. None where cases report them.
    """

    name: str
    title: str
    cases: tuple[Case, ...]
    items: tuple[str, float] | None = None


def ours(*arguments: str) -> tuple[str, ...]:
    """`clozeline ARGUMENTS` from this checkout."""
    return (sys.executable, "-m", "clozeline", *arguments)


def script(path: Path, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, str(path), *arguments)


def installed(*modules: str) -> bool:
    """Whether the packages of a peer are here; its case is left out, and said so, where not."""
    from importlib.util import find_spec

    missing = [m for m in modules if find_spec(m) is None]
    if missing:
        print(f"left out: {', '.join(missing)} is not installed", file=sys.stderr)
    return not missing


def shared_data() -> Path:
    """The corpora and vocabularies beside the checkout, or where CLOZELINE_BENCH_DATA says."""
    return Path(os.environ.get("CLOZELINE_BENCH_DATA", ROOT.parent / "shared" / "data"))


def english_text() -> Path:
    """20 MB of English, blank lines between documents; the sample corpus over and over where the real one is absent."""
    real = shared_data() / "corpora" / "en_20mb.txt"
    if real.is_file():
        return real
    made = scratch() / "sample_20mb.txt"
    if not made.is_file():
        files = sorted((ROOT / "sample_data" / "corpus").glob("*.txt"))
        if not files:
            raise SystemExit("no corpus: set CLOZELINE_BENCH_DATA to a folder with corpora/en_20mb.txt and tokenizers/")
        text = "\n\n".join(f.read_text() for f in files) + "\n\n"
        made.write_text(text * (20_000_000 // len(text.encode()) + 1))
    return made


def tokenizer_folder(name: str = "bert-base-uncased") -> Path:
    real = shared_data() / "tokenizers" / name
    return real if real.is_dir() else ROOT / "sample_data" / "tokenizer"


def english_rows() -> Path:
    """`packed` and `masked` rows of 512 of the English text, made on the first run."""
    place = scratch() / "rows"
    options = ("--documents", "blank-lines", "--tokenizer", str(tokenizer_folder()), "--resume", "--quiet")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pipeline")}
    command = ours("run", str(english_text()), str(place), *options)
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return place


def scratch() -> Path:
    """Where benchmarks keep input that they make."""
    folder = Path(os.environ.get("CLOZELINE_BENCH_SCRATCH", ROOT / "work" / "bench"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def multiplied(source: Path, times: int) -> Path:
    """A text `times` over, the documents of each copy in another order."""
    made = scratch() / f"{source.stem}_x{times}.txt"
    if not made.is_file() or made.stat().st_mtime < source.stat().st_mtime:
        import numpy as np

        documents = source.read_text(encoding="utf-8").strip("\n").split("\n\n")
        temporary = made.with_suffix(".part")
        with temporary.open("w", encoding="utf-8") as file:
            for copy in range(times):
                for i in np.random.default_rng(copy).permutation(len(documents)):
                    file.write(documents[i] + "\n\n")
        temporary.rename(made)
    return made


def _tree(root: int) -> list[int]:
    found, stack = [], [root]
    while stack:
        pid = stack.pop()
        found.append(pid)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                stack += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def _proportional_set_size(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0


def _watch(pid: int, stop: threading.Event, peak: list[int]) -> None:
    while not stop.wait(_POLL_SECONDS):
        peak[0] = max(peak[0], sum(map(_proportional_set_size, _tree(pid))))


def _adopt_orphans() -> None:
    """Makes this process the parent of what a case leaves behind (a fork server, say), so that its CPU time counts."""
    set_child_subreaper = 36
    ctypes.CDLL(None, use_errno=True).prctl(set_child_subreaper, 1, 0, 0, 0)


def _reap(first: int) -> tuple[int, float, int]:
    """Waits for a process and all orphans of its tree: exit code, CPU seconds, bytes written."""
    code = 0
    cpu = written = 0.0
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return code, cpu, int(written)
        assert ended is not None
        io = dict(line.split(": ") for line in Path(f"/proc/{ended.si_pid}/io").read_text().splitlines())
        written += int(io["write_bytes"])
        _, status, usage = os.wait4(ended.si_pid, 0)
        cpu += usage.ru_utime + usage.ru_stime
        if ended.si_pid == first:
            code = os.waitstatus_to_exitcode(status)


def _folder_bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def measure(case: Case, cpus: str | None = None) -> dict[str, float]:
    """Runs a case once, from nothing to exit."""
    folder = Path(tempfile.mkdtemp(prefix="out-", dir=scratch()))
    shutil.rmtree(folder)
    argv = [a.replace("{out}", str(folder)) for a in case.argv]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pipeline"), "HF_HUB_OFFLINE": "1", **case.environment}
    if cpus:
        argv = ["taskset", "-c", cpus, *argv]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(argv, stdout=out, stderr=err, env=environment, cwd=ROOT)
        peak, stop = [0], threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, stop, peak))
        watcher.start()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        wall = time.perf_counter() - start
        stop.set()
        watcher.join()
        process.returncode, cpu, written = _reap(process.pid)
        out.seek(0)
        err.seek(0)
        printed = out.read().decode(errors="replace")
        if process.returncode != case.exit_code:
            raise SystemExit(
                f"{case.name}: exit code {process.returncode}\n{' '.join(argv)}\n"
                f"{printed[-2000:]}{err.read().decode(errors='replace')[-4000:]}"
            )
    figures = {
        "wall": wall,
        "cpu": cpu,
        "memory": peak[0] / 1e6,
        "written": written / 1e6,
    }
    if folder.exists():
        figures["output"] = _folder_bytes(folder) / 1e6
        shutil.rmtree(folder)
    return {**figures, **_reported(printed)}


def _reported(printed: str) -> dict[str, float]:
    """The numbers of a JSON object on the last line."""
    lines = printed.strip().splitlines()
    try:
        body = json.loads(lines[-1]) if lines else None
    except ValueError:
        return {}
    if not isinstance(body, dict):
        return {}
    return {k: float(v) for k, v in body.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def machine() -> dict[str, Any]:
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "processor": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    return {d.metadata["Name"]: d.version for d in metadata.distributions() if d.metadata["Name"] in _NAMED}


_NAMED = {"clozeline", "numpy", "pyarrow", "tokenizers", "nanotoken", "gigatoken", "torch", "transformers", "datasets"} | {
    "datatrove", "mosaicml-streaming", "litdata", "webdataset", "pylance", "grain", "distributed", "sentencex"
}  # fmt: skip


def _portable(argument: str) -> str:
    """Without the paths of this machine."""
    places = {
        sys.executable: "python",
        str(shared_data()): "DATA",
        str(scratch()): "SCRATCH",
        f"{ROOT}/": "",
        str(ROOT): ".",
    }
    for place, name in places.items():
        argument = argument.replace(place, name)
    return argument


def run(subject: Subject, *, repeats: int, warm_up: int, cpus: str | None = None) -> dict[str, Any]:
    """Every case `warm_up + repeats` times in turn; the first rounds are not counted."""
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    before = machine()
    rounds: dict[str, list[dict[str, float]]] = {case.name: [] for case in subject.cases}
    for number in range(warm_up + repeats):
        turn = number % len(subject.cases)
        for case in (*subject.cases[turn:], *subject.cases[:turn]):
            figures = measure(case, cpus)
            print(
                f"{subject.name} {number - warm_up + 1 if number >= warm_up else 'warm-up'}: {case.name}: "
                f"{figures['wall']:.2f} s, {figures['cpu']:.2f} s CPU, {figures['memory']:.0f} MB",
                file=sys.stderr,
            )
            if number >= warm_up:
                rounds[case.name].append(figures)
    cases = []
    for case in subject.cases:
        runs = rounds[case.name]
        medians = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
        cases.append({**asdict(case), "argv": [_portable(a) for a in case.argv], "median": medians, "runs": runs})
    for body in cases:
        first = cases[0]["median"]
        body["ratio"] = {k: round(v / first[k], 3) for k, v in body["median"].items() if first.get(k)}
    return {
        "subject": subject.name,
        "title": subject.title,
        "items": subject.items,
        "started": started,
        "argv": [_portable(a) for a in sys.argv],
        "repeats": repeats,
        "warm_up": warm_up,
        "machine": before,
        "versions": versions(),
        "cases": cases,
    }


def _circumstances(result: dict[str, Any]) -> str:
    on = result["machine"]
    load = f"load average {on['load']:.1f}"  # above the number of cores: trust CPU seconds and ratios
    return (
        f"Medians of {result['repeats']}, {result['started'][:10]}, {on['cores']} cores of {on['processor']}, {load}."
    )


def record(name: str, title: str, medians: dict[str, dict[str, float]], repeats: int, out: Path = RESULTS) -> str:
    """Keeps what a benchmark measured that times its cases itself, within processes; returns the table.

    Args:
        medians: figures of each case, by its name.
    """
    result = {
        "subject": name,
        "title": title,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "argv": [_portable(a) for a in sys.argv],
        "repeats": repeats,
        "machine": machine(),
        "versions": versions(),
        "cases": [{"name": case, "median": figures} for case, figures in medians.items()],
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return table(result)


def _inner_table(result: dict[str, Any]) -> str:
    columns = list(result["cases"][0]["median"])
    lines = [
        f"**{result['subject']}.** {result['title']}. {_circumstances(result)}",
        "",
        "| " + " | ".join(["", *columns]) + " |",
        "|" + "---|" * (1 + len(columns)),
    ]
    for case in result["cases"]:
        cells = [f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}" for value in case["median"].values()]
        lines.append(f"| {case['name']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def table(result: dict[str, Any]) -> str:
    """A result as a Markdown table; ratios are how many times our figure each is."""
    if "wall" not in result["cases"][0]["median"]:
        return _inner_table(result)
    standard = ["wall", "cpu", "memory", "written", "output"]
    extra = sorted({k for c in result["cases"] for k in c["median"]} - set(standard))
    items = result["items"]
    heads = ["", "wall s", "x ours", "CPU s", "x ours", "memory MB", "written MB", "output MB"]
    heads += [f"{items[0]}/s"] if items else []
    lines = [
        f"**{result['subject']}.** {result['title']}. {_circumstances(result)}",
        "",
        "| " + " | ".join(heads + extra) + " |",
        "|" + "---|" * len(heads + extra),
    ]
    for case in result["cases"]:
        m, ratio = case["median"], case["ratio"]
        cells = [
            f"{case['name']}" + (f" ({case['role']})" if case["role"] == "floor" else ""),
            f"{m['wall']:.2f}",
            f"{ratio['wall']:.2f}",
            f"{m['cpu']:.2f}",
            f"{ratio['cpu']:.2f}",
            f"{m['memory']:.0f}",
            f"{m['written']:.1f}",
            f"{m['output']:.1f}" if "output" in m else "",
        ]
        if items:
            cells.append(f"{items[1] / m['wall']:,.0f}")
        cells += [f"{m[k]:,.4g}" if k in m and m[k] < 1000 else f"{m[k]:,.0f}" if k in m else "" for k in extra]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(*subjects: Subject, repeats: int = 3, warm_up: int = 1) -> None:
    """The command line of a benchmark script: runs its subjects, writes results/NAME.json, prints tables."""
    parser = argparse.ArgumentParser(description=f"Benchmarks: {', '.join(s.name for s in subjects)}")
    parser.add_argument("--repeats", type=int, default=repeats, help="counted rounds")
    parser.add_argument("--warm-up", type=int, default=warm_up, help="rounds before them that are not counted")
    parser.add_argument("--only", action="append", help="a case or subject by its name or part of it; may be repeated")
    parser.add_argument("--cpus", help="cores to run on, as taskset takes them (0 or 0,1)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the JSON")
    options = parser.parse_args()
    _adopt_orphans()
    options.out.mkdir(parents=True, exist_ok=True)
    for subject in subjects:
        if options.only and not any(o in subject.name for o in options.only):
            cases = tuple(c for c in subject.cases if any(o in c.name for o in options.only))
            if not cases:
                continue
            subject = Subject(name=subject.name, title=subject.title, cases=cases, items=subject.items)
        result = run(subject, repeats=options.repeats, warm_up=options.warm_up, cpus=options.cpus)
        (options.out / f"{subject.name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(table(result))


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(table(json.loads(Path(path).read_text())))
