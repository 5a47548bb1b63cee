"""The configuration file: defaults for options, by command."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Any

import click

from clozeline.errors import ConfigError

_RUN_SECTIONS = ("shard", "pack", "mask", "run")  # what `run` takes its values from; the last one wins


def _read_config(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is None:
        return
    try:
        config = tomllib.loads(value.read_text("utf-8"))
    except (
        OSError,
        ValueError,
        RecursionError,
    ) as error:  # not UTF-8, not TOML, a number of 5,000 digits, 2,000 brackets
        raise ConfigError(f"{value}: cannot be read as TOML ({error})") from error
    ctx.default_map = _defaults(value, config, ctx.info_name or "")


def _defaults(path: Path, config: dict[str, Any], command: str) -> dict[str, Any]:
    """The values that a configuration holds for a command; every section and key is checked."""
    from clozeline.cli.main import COMMANDS

    defaults: dict[str, Any] = {}
    origin: dict[str, str] = {}
    sections = _RUN_SECTIONS if command == "run" else (command,)
    for section, values in config.items():
        if section not in COMMANDS:
            raise ConfigError(f"{path}: unknown section [{section}]; there are {', '.join(f'[{c}]' for c in COMMANDS)}")
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: {section!r} stands outside a section; write it under [{command}]")
        known = _option_names(section)
        for key in values:
            if key.replace("-", "_") not in known:
                options = ", ".join(sorted(known))
                raise ConfigError(f"{path}: unknown key {key!r} in [{section}]; there are {options}")
            value = values[key]
            items = value if isinstance(value, list) and key.replace("-", "_") in _lists(section) else [value]
            if not all(isinstance(item, (str, int, float)) for item in items):
                raise ConfigError(f"{path}: {key} in [{section}] is {str(value)[:50]!r}, which no option can be")
    own = _option_names(command)
    for section in sections:
        for key, value in config.get(section, {}).items():
            name = key.replace("-", "_")
            if name not in own:
                continue
            if section != "run" and defaults.get(name, value) != value:
                raise ConfigError(
                    f"{path}: {key} is {defaults[name]!r} in [{origin[name]}] and {value!r} in [{section}]; "
                    "`run` has one for both: set it in [run]"
                )
            defaults[name], origin[name] = value, section
    return defaults


def _lists(command: str) -> set[str]:
    """Options that may be given several times."""
    params = importlib.import_module(f"clozeline.cli.{command}").command.params
    return {p.name for p in params if isinstance(p, click.Option) and p.multiple and p.name}


def _option_names(command: str) -> set[str]:
    params = importlib.import_module(f"clozeline.cli.{command}").command.params
    return {p.name for p in params if isinstance(p, click.Option) and p.name not in ("config", None)}


config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_read_config,
    is_eager=True,
    expose_value=False,
    help="TOML file with a section for each command ([mask] seed = 7). A flag beats the environment (CLOZELINE_MASK_SEED), "
    "which beats the file.",
)
