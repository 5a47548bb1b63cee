"""Any number of processes finds the same, and a lost one is an error."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_models import plain_loss, rows_of, tiny_model

SCRIPT = Path(__file__).with_name("rank_script.py")


def run(count: int, *arguments: object) -> list[subprocess.CompletedProcess[str]]:
    """`count` processes in one group, on the CPU."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = []
    for rank in range(count):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in place.items()}}
        command = [sys.executable, str(SCRIPT), *map(str, arguments)]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    finished = []
    for process in processes:
        out, err = process.communicate(timeout=300)
        finished.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return finished


KINDS = ("bert", "roberta", "modernbert")


def test_one_two_and_three_processes_find_the_same_to_the_last_bit(
    prepared: Path, vocabulary_size: int, tmp_path: Path
) -> None:
    models = [tiny_model(kind, vocabulary_size) for kind in KINDS]
    for kind, model in zip(KINDS, models, strict=True):
        model.save_pretrained(tmp_path / kind)
    found: list[dict[str, Any]] = []
    for count in (1, 2, 3):
        out = tmp_path / str(count)
        out.mkdir()
        for process in run(count, prepared, out, *(tmp_path / kind for kind in KINDS)):
            assert process.returncode == 0, process.stderr
        found += [json.loads((out / f"{rank}.json").read_text()) for rank in range(count)]
    for other in found[1:]:
        assert other == found[0]
    for kind, model in zip(KINDS, models, strict=True):
        both = [plain_loss(model, rows_of(prepared / "masked", copy)) for copy in (0, 1)]
        limited = []
        for batch in (1, 2, 7, 64):
            static, on_the_fly = (
                found[0][f"{kind}, {how}, batch {batch}, limit None"] for how in ("static", "on the fly")
            )
            assert static == on_the_fly, "static copy k and epoch k on the fly are one masking"
            assert static["maskings"] == pytest.approx(both, rel=1e-6)
            assert static["head"] == "selected positions"
            limited.append(found[0][f"{kind}, static, batch {batch}, limit 19"])
        assert {r["rows"] for r in limited} == {2 * 19}
        assert [r["loss"] for r in limited] == pytest.approx([limited[0]["loss"]] * 4, rel=1e-6)


@pytest.mark.parametrize(("lost", "after"), [(1, 6), (0, 0)])
def test_a_lost_process_is_an_error_and_not_a_smaller_sum(
    lost: int, after: int, prepared: Path, bert_folder: Path, tmp_path: Path
) -> None:
    processes = run(3, prepared, tmp_path, "lose", lost, after, bert_folder)
    assert processes[lost].returncode == -signal.SIGKILL
    for rank in {0, 1, 2} - {lost}:
        assert processes[rank].returncode == 1
        assert "another process was lost" in processes[rank].stderr
    assert not list(tmp_path.iterdir())


def test_the_command_runs_under_torchrun(prepared: Path, bert_folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "clozeline",
    ]
    command += ["evaluate", str(prepared / "masked"), "--model", str(bert_folder), "--device", "cpu", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["processes"] == 2
    assert body["rows"] == sum(len(rows_of(prepared / "masked", copy)["row"]) for copy in (0, 1))
