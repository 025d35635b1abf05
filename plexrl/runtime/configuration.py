"""The one place that reads Dask's configuration: key ``plexrl`` → frozen objects."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeVar

import dask.config
import yaml
from dask.utils import parse_bytes, parse_timedelta

from plexrl.config import ClusterConfig, EngineConfig, StateConfig
from plexrl.errors import ConfigError
from plexrl.planning.config import PlanningConfig
from plexrl.spelling import hint

DEFAULTS = Path(__file__).resolve().parents[1] / "plexrl.yaml"
"""The file of defaults that ships with the package."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be configured, read once."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    state: StateConfig = field(default_factory=StateConfig)
    engines: EngineConfig = field(default_factory=EngineConfig)
    planning: PlanningConfig = field(default_factory=PlanningConfig)


_SECTIONS = frozenset(item.name for item in fields(Settings))

T = TypeVar("T")


def register_defaults() -> None:
    """Tell Dask the defaults of the key ``plexrl``, below what users set."""
    dask.config.update_defaults(yaml.safe_load(DEFAULTS.read_text(encoding="utf-8")))


def read(tree: object = None) -> Settings:
    """Settings from Dask's configuration.

    Parameters
    ----------
    tree
        Mapping section → key → value; by default what Dask has under ``plexrl``. Keys may be spelt
        with ``-`` or ``_``; sizes may be texts such as ``"64 MiB"``, times such as ``"2 minutes"``.

    Raises
    ------
    ConfigError
        An unknown key, a wrong type or a value out of range; the message names key, value, remedy.
    """
    found = _mapping("plexrl", dask.config.get("plexrl", {}) if tree is None else tree)
    for name in found:
        if name not in _SECTIONS:
            raise ConfigError(f"plexrl.{name} is no known section; {hint(name, _SECTIONS)}")
    return Settings(
        cluster=_section("cluster", ClusterConfig, found.get("cluster")),
        state=_section("state", StateConfig, found.get("state")),
        engines=_section("engines", EngineConfig, found.get("engines")),
        planning=_section("planning", PlanningConfig, found.get("planning")),
    )


def _section(name: str, kind: type[T], given: object) -> T:
    wanted = typing.get_type_hints(kind)
    values = {}
    for key, value in _mapping(f"plexrl.{name}", {} if given is None else given).items():
        path = f"plexrl.{name}.{key}"
        if key not in wanted:
            raise ConfigError(f"{path} is no known key; {hint(key, wanted)}")
        values[key] = _value(path, value, wanted[key])
    return kind(**values)


def _mapping(path: str, given: object) -> dict[str, object]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{path} is {given!r}; give a mapping of keys to values")
    return {str(key).replace("-", "_"): value for key, value in given.items()}


def _value(path: str, value: object, wanted: object) -> object:
    """The value as one of the wanted type (int, float, str, bool, or one of them or None)."""
    if isinstance(wanted, types.UnionType):
        if value is None:
            return None
        wanted = next(kind for kind in typing.get_args(wanted) if kind is not type(None))
    assert isinstance(wanted, type), f"{path} has a type the reader does not know: {wanted!r}"
    if isinstance(value, str) and wanted in {int, float}:
        value = _parsed(path, value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ConfigError(
            f"{path} is {value!r}, of type {type(value).__name__}; give {_example(path, wanted)}"
        )
    # No setting is meaningful below 0; closer limits are the sections' own. NaN fails too.
    if isinstance(value, int | float) and not 0 <= value < math.inf:
        raise ConfigError(f"{path} is {value!r}; give {_example(path, wanted)} of at least 0")
    return value


def _parsed(path: str, text: str) -> object:
    """A size or time written with its unit, as Dask users write them; other texts unchanged."""
    try:
        if path.endswith("_bytes"):
            return int(parse_bytes(text))
        if path.endswith("_s"):
            return float(parse_timedelta(text))
    except (KeyError, TypeError, ValueError):
        return text
    return text


def _example(path: str, wanted: type) -> str:
    if path.endswith("_bytes"):
        return 'a whole number of bytes, or a text such as "64 MiB"'
    if path.endswith("_s"):
        return 'a number of seconds, or a text such as "2 minutes"'
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(wanted, "a text")


register_defaults()
