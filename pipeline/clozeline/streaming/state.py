"""The state of a stream: small flat JSON, the same on every rank."""

from __future__ import annotations

from typing import Any

from clozeline.errors import ConfigError
from clozeline.streaming import order

VERSION = 1
_MEANING = {
    "version": "version of the state",
    "order_version": "version of the row order",
    "global_batch": "rows in a global batch (batch_size * world_size)",
    "data": "digest of the data",
    "transform": "transform (masking)",
}


def make_state(epoch: int, rows: int, global_batch: int | None, tail: str, source: dict[str, Any]) -> dict[str, Any]:
    """A state.

    Args:
        epoch, rows: how many rows of the epoch all ranks together have been given.
        global_batch: rows in a global batch; None where single rows are given.
        tail: of the plan.
        source: what the batches depend on.
    """
    return {
        "version": VERSION,
        "order_version": order.VERSION,
        "epoch": epoch,
        "rows": rows,
        "global_batch": global_batch,
        "tail": tail,
        **source,
    }


def check_state(state: dict[str, Any], now: dict[str, Any]) -> None:
    """Raises ConfigError, naming both values, unless a stream described by `now` may go on from `state`."""
    for key, value in now.items():
        if key in ("epoch", "rows"):
            if not isinstance(state.get(key), int) or state[key] < 0:
                raise ConfigError(
                    f"the state's {key} is {state.get(key)!r}: it is no state of a stream, or a damaged one"
                )
        elif key not in state or state[key] != value:
            found = repr(state[key]) if key in state else "missing"
            raise ConfigError(
                f"cannot resume: {_MEANING.get(key, key)} is {found} in the state, {value!r} in this stream; give the stream the "
                "data and options that the state was taken with"
            )
    if now["global_batch"] is not None and state["rows"] % now["global_batch"]:
        raise ConfigError(
            f"cannot resume: {state['rows']} rows in the state are no multiple of the global batch of {now['global_batch']} rows"
        )
