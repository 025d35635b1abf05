import json
import math
from dataclasses import replace

from plexrl.dashboard.perfetto import events, write_perfetto
from solver.trace import IterationRecord
from tests.plexrl.cli.made_up import iteration, lease
from tests.plexrl.dashboard.made_up import MadeUp


def test_a_trace_has_a_track_per_group_and_per_job():
    source = MadeUp(num_groups=2, num_jobs=3)
    found = events(source.log, [])
    names = [(e["pid"], e["args"]["name"]) for e in found if e["name"] == "thread_name"]
    assert [name for pid, name in names if pid == 1] == ["group-0", "group-1"]
    assert [name for pid, name in names if pid == 2] == ["job-0", "job-1", "job-2"]


def test_a_job_that_samples_ahead_has_a_track_for_each_of_its_groups():
    ahead = replace(lease(iteration=1), group="group-1", started_s=0.5, ended_s=2.0)
    found = events([lease(op="actor.train.0"), ahead], [iteration("a")])
    names = [(e["pid"], e["args"]["name"]) for e in found if e["name"] == "thread_name"]
    assert [name for pid, name in names if pid == 2] == ["a on group-0", "a on group-1"]
    assert [name for pid, name in names if pid == 3] == ["a"]


def test_slices_of_a_group_never_overlap_and_keep_their_lengths():
    found = events([lease(started=1.0, ended=2.0, swap_s=0.25)], [])
    slices = [e for e in found if e["ph"] == "X" and e["pid"] == 1]
    assert [(e["cat"], e["ts"], e["dur"]) for e in slices] == [
        ("swap", 1e6, 0.25e6),
        ("held", 1.25e6, 0.75e6),
    ]


def is_event(event):
    """Whether it has what the Chrome trace format asks for."""
    wanted = {
        "M": {"pid": int, "name": str, "args": dict},
        "X": {"pid": int, "tid": int, "name": str, "cat": str, "ts": float, "dur": float},
        "C": {"pid": int, "name": str, "ts": float, "args": dict},
    }[event["ph"]]
    has_all = all(isinstance(event.get(name), kind) for name, kind in wanted.items())
    return has_all and event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0


def test_every_event_is_one_of_the_chrome_trace_format(tmp_path):
    source = MadeUp(num_groups=2, num_jobs=3)
    records = [record for job in source.jobs for record in source.iterations(job.name)]
    path = write_perfetto(tmp_path / "trace.json", source.log, records)
    found = json.loads(path.read_text())["traceEvents"]
    assert {event["ph"] for event in found} == {"M", "X", "C"}
    assert [event for event in found if not is_event(event)] == []
    named = {(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in found if e["ph"] == "X"} <= named
    assert all(isinstance(v, float) for e in found if e["ph"] == "C" for v in e["args"].values())


def test_a_metric_that_is_no_number_does_not_spoil_the_file(tmp_path):
    record = IterationRecord("a", 0, 0.0, 1.0, (("reward_mean", math.nan), ("loss", 0.5)))
    path = write_perfetto(tmp_path / "trace.json", [], [record])
    (made,) = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert made["args"] == {"loss": 0.5}


def test_iterations_carry_their_metrics_and_a_reward_counter(tmp_path):
    path = write_perfetto(tmp_path / "trace.json", [], [iteration("a", 7, reward=0.5)])
    found = json.loads(path.read_text())["traceEvents"]
    (made,) = [e for e in found if e.get("cat") == "iteration"]
    assert made["args"]["reward_mean"] == 0.5
    (counter,) = [e for e in found if e["ph"] == "C"]
    assert counter["args"] == {"reward_mean": 0.5}
