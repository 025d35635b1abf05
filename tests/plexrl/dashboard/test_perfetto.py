import json

from plexrl.dashboard.perfetto import events, write_perfetto
from tests.plexrl.cli.made_up import iteration, lease
from tests.plexrl.dashboard.made_up import MadeUp


def test_a_trace_has_a_track_per_group_and_per_job():
    source = MadeUp(num_groups=2, num_jobs=3)
    found = events(source.log, [])
    names = [(e["pid"], e["args"]["name"]) for e in found if e["name"] == "thread_name"]
    assert [name for pid, name in names if pid == 1] == ["group-0", "group-1"]
    assert [name for pid, name in names if pid == 2] == ["job-0", "job-1", "job-2"]


def test_slices_of_a_group_never_overlap_and_keep_their_lengths():
    found = events([lease(started=1.0, ended=2.0, swap_s=0.25)], [])
    slices = [e for e in found if e["ph"] == "X" and e["pid"] == 1]
    assert [(e["cat"], e["ts"], e["dur"]) for e in slices] == [
        ("swap", 1e6, 0.25e6),
        ("held", 1.25e6, 0.75e6),
    ]


def test_iterations_carry_their_metrics_and_a_reward_counter(tmp_path):
    path = write_perfetto(tmp_path / "trace.json", [], [iteration("a", 7, reward=0.5)])
    found = json.loads(path.read_text())["traceEvents"]
    (made,) = [e for e in found if e.get("cat") == "iteration"]
    assert made["args"]["reward_mean"] == 0.5
    (counter,) = [e for e in found if e["ph"] == "C"]
    assert counter["args"] == {"reward_mean": 0.5}
