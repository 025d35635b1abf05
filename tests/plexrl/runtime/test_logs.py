import json
import logging

from dataflow.calls import VersionToken
from plexrl.runtime.logs import JsonLines, log_driver
from plexrl.runtime.messages import DriverEnded, DriverStarted, IterationCommitted
from solver.trace import IterationRecord


def lines(caplog):
    return [json.loads(JsonLines().format(record)) for record in caplog.records]


def test_a_commit_carries_job_iteration_and_version(caplog):
    caplog.set_level(logging.INFO, "plexrl.scheduler")
    token = VersionToken("a", "actor", 5, "digest")
    log_driver(IterationCommitted(IterationRecord("a", 4, 0.0, 1.0), (token,)))
    (line,) = lines(caplog)
    assert (line["job"], line["iteration"], line["version"]) == ("a", 4, 5)
    assert line["level"] == "info"


def test_starts_ends_and_failures_are_told(caplog):
    caplog.set_level(logging.INFO, "plexrl.scheduler")
    log_driver(DriverStarted("a", 0.0, 3))
    log_driver(DriverEnded("a", 1.0, ""))
    log_driver(DriverEnded("c", 1.0, "", "score 1 reached"))
    log_driver(DriverEnded("b", 1.0, "reward is NaN\ntraceback"))
    assert [line["message"] for line in lines(caplog)] == [
        "job a starts at iteration 3",
        "job a finished",
        "job c finished early: score 1 reached",
        "job b failed: reward is NaN",
    ]
    assert [line["level"] for line in lines(caplog)] == ["info", "info", "info", "error"]


def test_a_line_is_one_line_even_with_a_traceback(caplog):
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("plexrl.scheduler").exception("went\nwrong")
    text = JsonLines().format(caplog.records[-1])
    assert "\n" not in text
    assert "ValueError" in json.loads(text)["error"]
