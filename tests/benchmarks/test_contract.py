import io
import json

import pytest
from rich.console import Console

from benchmarks import __main__ as runner
from benchmarks.contract import BenchmarkResult
from plexrl.cli.machine import Machine

MACHINE = Machine("cpu", 2, 4.0, "Linux x86_64", "3.11", "2.13")
RESULT = BenchmarkResult("live", {"ratio_k2": 1.04}, {"plain_s": 2.0}, 7)


def test_json_has_the_fields_of_the_contract():
    data = json.loads(json.dumps(runner.to_json(RESULT, "python -m benchmarks live", MACHINE)))
    assert data.keys() == {"name", "figures", "peers", "command", "machine", "seed"}
    assert data["figures"] == {"ratio_k2": 1.04}
    assert data["machine"]["cores"] == 2


def test_table_shows_figures_peers_and_what_they_depend_on():
    console = Console(file=io.StringIO(), width=100)
    runner.show(RESULT, "python -m benchmarks live", MACHINE, console)
    for word in ("ratio_k2", "1.04", "peer: plain_s", "python -m benchmarks live", "2 cores", "7"):
        assert word in console.file.getvalue()


def test_figures_must_be_numbers():
    with pytest.raises(TypeError, match="'ratio'"):
        BenchmarkResult("x", {"ratio": "fast"}, {}, 0)


def test_list_names_every_scenario(capsys):
    assert runner.main(["list"]) == 0
    assert capsys.readouterr().out.split() == runner.names()
    assert {"live", "overhead"} <= set(runner.names())


def test_an_unknown_benchmark_is_bad_input(capsys):
    assert runner.main(["overhed", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "did you mean 'overhead'" in captured.err


def test_the_last_line_is_one_json_object(monkeypatch, capsys):
    class Scenario:
        @staticmethod
        def run(quick, progress):
            progress("half way")
            return BenchmarkResult("live", {"is_quick": float(quick)}, {}, 0)

    monkeypatch.setattr(runner.importlib, "import_module", lambda _: Scenario)
    assert runner.main(["live", "--quick", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["figures"] == {"is_quick": 1.0}
    assert json.loads(captured.out)["command"] == "python -m benchmarks live --quick --json"
    assert "half way" in captured.err
