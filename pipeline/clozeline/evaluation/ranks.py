"""Evaluation by several processes: who we are, and one collective at the end."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from clozeline.errors import JobError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_PATIENCE = timedelta(hours=1)  # how long a process waits at the end for the slowest


def join() -> None:
    """Enters the process group that torchrun has prepared, unless there is none or we are in it."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and dist.is_available() and not dist.is_initialized():
        dist.init_process_group("gloo", timeout=_PATIENCE)  # sums are gathered once, on the host: no need of NCCL


def leave() -> None:
    """Leaves it, if we are in one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def process_count() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_rank() -> int:
    return dist.get_rank() if process_count() > 1 else 0


def gather(state: dict[str, Any]) -> list[dict[str, NDArray[np.int64]]]:
    """What each process has found, in the order of their ranks, on every process.

    Raises:
        JobError: a process is gone or does not answer.
    """
    if process_count() == 1:
        return [state]
    states: list[Any] = [None] * process_count()
    try:
        dist.all_gather_object(states, state)
    except (RuntimeError, ValueError) as error:  # what torch raises when a connection breaks or times out
        raise JobError(
            f"process {process_rank()} of {process_count()}: another process was lost before the results were put together "
            f"({str(error).split('. ')[0]}); there is no result: run it again, with --checkpoint and --resume to keep what is done"
        ) from error
    return states
