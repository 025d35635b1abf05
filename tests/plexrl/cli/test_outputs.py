import json

import pyarrow.parquet as pq
import pytest

from plexrl.cli.outputs import OutputFolder
from plexrl.errors import InputError
from tests.plexrl.cli.made_up import iteration, lease


def test_metrics_are_tidy(tmp_path):
    folder = OutputFolder(tmp_path / "out")
    runs = {"alone": [iteration("a-alone")], "shared": [iteration("a")]}
    path = folder.write_metrics(runs, {"a-alone": "a"})
    rows = pq.read_table(path).to_pylist()
    assert {row["job"] for row in rows} == {"a"}
    rewards = [row for row in rows if row["metric"] == "reward_mean"]
    assert [(row["run"], row["value"]) for row in rewards] == [("alone", 0.5), ("shared", 0.5)]


def test_leases_keep_every_field(tmp_path):
    path = OutputFolder(tmp_path / "out").write_leases({"shared": [lease()]}, {})
    (row,) = pq.read_table(path).to_pylist()
    assert row == {"run": "shared", **lease().to_json()}


def test_a_run_without_data_has_empty_tables(tmp_path):
    folder = OutputFolder(tmp_path / "out")
    assert pq.read_table(folder.write_metrics({}, {})).num_rows == 0
    assert pq.read_table(folder.write_leases({}, {})).num_rows == 0


def test_json_is_readable(tmp_path):
    path = OutputFolder(tmp_path / "out").write_json("plan.json", {"format": 1})
    assert json.loads(path.read_text()) == {"format": 1}


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(InputError, match="--output"):
        OutputFolder(tmp_path / "out")
