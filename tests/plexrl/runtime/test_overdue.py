import asyncio

from plexrl.errors import TaskTimeoutError
from plexrl.runtime.ordinary import OrdinaryTasks
from plexrl.runtime.overdue import Overdue


class Gate:
    """Ordinary tasks that run on one worker, and what depends on them."""

    def __init__(self, keys, dependents=()):
        self.keys = list(keys)
        self.graph = dict(dependents)
        self.failed = []

    def ordinary_keys(self):
        return tuple(self.keys)

    def dependents(self, key):
        return self.graph.get(key, ())

    def worker_of(self, _key):
        return "tcp://worker"

    def fail(self, key, error):
        self.keys.remove(key)
        self.failed.append((key, error))

    def restart(self, _address):
        raise AssertionError("not while the driver may still have to tell the failure")


class Entry:
    job = "by-graph"


def test_tasks_belong_to_the_job_in_their_key_or_to_the_one_they_feed():
    named = "reward-i3.a0.t0.my.job.r1"
    gate = Gate(
        [named, "own-1", "nobody's"],
        {"own-1": ("next",), "next": ("llm",), "nobody's": ("dead end",)},
    )
    tasks = OrdinaryTasks(gate, {"my.job"}, {"llm": Entry})
    assert tasks.jobs() == {named: "my.job", "own-1": "by-graph"}
    assert tasks.phases() == {"my.job": "reward", "by-graph": "own"}


def test_only_what_runs_longer_than_its_limit_fails():
    gate, now_s = Gate(["old", "young"]), 0.0

    async def look_twice():
        nonlocal now_s
        jobs = {"old": "a", "young": "b"}
        overdue = Overdue(gate, 10.0, lambda: {key: jobs[key] for key in gate.keys}, lambda: now_s)
        gate.keys = ["old"]
        overdue.look()
        now_s = 6.0
        gate.keys = ["old", "young"]
        overdue.look()
        assert gate.failed == []
        now_s = 11.0
        overdue.look()

    asyncio.run(look_twice())
    ((key, error),) = gate.failed
    assert key == "old"
    assert isinstance(error, TaskTimeoutError)
    assert "task old of job 'a' ran for more than 10 s on tcp://worker" in str(error)
