from dataclasses import asdict

import dask.config
import pytest
import yaml

from plexrl.errors import ConfigError
from plexrl.runtime.configuration import DEFAULTS, Settings, read


def test_shipped_file_holds_exactly_the_defaults():
    shipped = yaml.safe_load(DEFAULTS.read_text(encoding="utf-8"))
    assert shipped == {"plexrl": asdict(Settings())}


def test_dask_knows_the_defaults():
    assert read() == Settings()


def test_values_set_in_dask_are_read():
    with dask.config.set({"plexrl.state.host-budget-bytes": "128 MiB"}):
        assert read().state.host_budget_bytes == 128 << 20


def test_units_may_be_written_out():
    settings = read({"engines": {"call_timeout_s": "2 minutes"}})
    assert settings.engines.call_timeout_s == 120.0


def test_whole_numbers_serve_as_seconds():
    assert read({"engines": {"call_timeout_s": 7}}).engines.call_timeout_s == 7.0


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"stat": {}}, ["plexrl.stat ", "did you mean 'state'"]),
        ({"state": {"stor": "x"}}, ["plexrl.state.stor", "did you mean 'store'"]),
        ({"cluster": {"groups": "two"}}, ["plexrl.cluster.groups", "'two'", "whole number"]),
        ({"cluster": {"groups": True}}, ["plexrl.cluster.groups", "True"]),
        ({"cluster": {"groups": 1.5}}, ["plexrl.cluster.groups", "1.5"]),
        ({"cluster": {"groups": 0}}, ["plexrl.cluster.groups", "0", "at least 1"]),
        ({"state": {"host_budget_bytes": "lots"}}, ["host_budget_bytes", "'lots'", "64 MiB"]),
        ({"state": {"is_synced": 1}}, ["is_synced", "true or false"]),
        ({"state": {"store": None}}, ["plexrl.state.store", "None", "a text"]),
        ({"planning": {"period_s": -1}}, ["plexrl.planning.period_s", "-1", "at least 0"]),
        ({"planning": {"slack": float("nan")}}, ["plexrl.planning.slack", "nan"]),
        ({"engines": []}, ["plexrl.engines", "mapping"]),
        ("no", ["plexrl is 'no'"]),
    ],
)
def test_wrong_configuration_is_named(tree, words):
    with pytest.raises(ConfigError) as caught:
        read(tree)
    for word in words:
        assert word in str(caught.value)
