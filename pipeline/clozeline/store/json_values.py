"""JSON that others may have written or damaged: limits before it is parsed, types before it is used."""

from __future__ import annotations

import json
import types
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Value = TypeVar("Value", bound=DataclassInstance)

MAX_BYTES = 2**28  # a manifest of a million shards
MAX_DEPTH = 32
_MAX_INT = 2**64


def parse_json(data: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ValueError: not JSON in UTF-8, not an object, larger than `MAX_BYTES`, or nested deeper than `MAX_DEPTH`.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"{len(data):,} bytes, at most {MAX_BYTES:,} are read")
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return value
    raise ValueError(f"nested deeper than {MAX_DEPTH}")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def checked(value: Value) -> Value:
    """The dataclass instance itself, when every field holds what its annotation says and no number is negative or over 64 bits.

    Raises:
        ValueError: naming the field.
    """
    hints = _hints(type(value))
    for field in fields(value):
        if not _fits(getattr(value, field.name), hints[field.name]):
            raise ValueError(f"{field.name} is {str(getattr(value, field.name))[:50]!r}")
    return value


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    if hint is int:
        return type(value) is int and 0 <= value < _MAX_INT
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return isinstance(value, hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if origin is tuple:
        return (
            isinstance(value, tuple)
            and len(value) == len(arguments)
            and all(_fits(item, argument) for item, argument in zip(value, arguments, strict=True))
        )
    if origin is dict:
        return isinstance(value, dict) and all(
            _fits(k, arguments[0]) and _fits(v, arguments[1]) for k, v in value.items()
        )
    raise TypeError(f"no check for {hint}")
