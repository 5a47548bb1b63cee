"""Which rank this process is, of how many."""

from __future__ import annotations

import os

from clozeline.errors import ConfigError


def _distributed() -> tuple[int, int] | None:
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return None


def find_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """(rank, world size): as given, else of `torch.distributed`, else RANK and WORLD_SIZE of the environment, else (0, 1).

    Raises:
        ConfigError: only one of the two is given, or they do not fit each other.
    """
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank is {rank} and world_size is {world_size}: give both or neither")
    if rank is None or world_size is None:
        found = _distributed()
        if found is None:
            try:
                found = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
            except ValueError as error:
                raise ConfigError(f"RANK or WORLD_SIZE of the environment is no number ({error})") from error
        rank, world_size = found
    if world_size < 1 or not 0 <= rank < world_size:
        raise ConfigError(f"rank is {rank} of {world_size}: ranks count from 0 to world_size - 1")
    return rank, world_size


def check_rank(rank: int, world_size: int) -> None:
    """Raises ConfigError when `torch.distributed`, started in the meantime, says another rank than was found before."""
    found = _distributed()
    if found is not None and found != (rank, world_size):
        raise ConfigError(
            f"the stream was made for rank {rank} of {world_size}, torch.distributed says rank {found[0]} of {found[1]}: make the "
            "stream after init_process_group, or give it rank and world_size"
        )
