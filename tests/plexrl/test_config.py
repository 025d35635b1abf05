import dataclasses

import pytest

from plexrl.config import ClusterConfig, EngineConfig, StateConfig
from plexrl.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (ClusterConfig, "groups", 0),
        (ClusterConfig, "cpu_workers", -1),
        (ClusterConfig, "worker_ttl_s", 0.0),
        (StateConfig, "store", ""),
        (StateConfig, "store", "memory://states"),
        (StateConfig, "host_budget_bytes", 0),
        (StateConfig, "pressure_timeout_s", float("nan")),
        (EngineConfig, "call_timeout_s", float("inf")),
    ],
)
def test_values_out_of_range_are_named(kind, name, value):
    with pytest.raises(ConfigError, match=name):
        kind(**{name: value})


@pytest.mark.parametrize("kind", [ClusterConfig, StateConfig, EngineConfig])
def test_defaults_are_legal_and_frozen(kind):
    config = kind()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, dataclasses.fields(kind)[0].name, 1)
