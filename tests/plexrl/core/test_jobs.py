"""The job table: life of a job as data."""

import itertools

import pytest

from plexrl.core.jobs import TRANSITIONS, JobFacts, JobTable
from plexrl.core.placement import Placement
from plexrl.core.status import JobState
from plexrl.errors import JobError, PlexRLError
from solver.trace import IterationRecord


def facts(name="a", iterations=3):
    return JobFacts(
        name,
        ops=(),
        memory_bytes=1,
        iterations=iterations,
        slowdown_limit=2.0,
        weight=1.0,
        models={},
    )


def table_in(state):
    table = JobTable()
    table.add(facts(), Placement("g"), 0.0)
    paths = {
        JobState.STARTING: (),
        JobState.RUNNING: (JobState.RUNNING,),
        JobState.PAUSED: (JobState.RUNNING, JobState.PAUSED),
        JobState.FINISHED: (JobState.RUNNING, JobState.FINISHED),
        JobState.FAILED: (JobState.FAILED,),
        JobState.CANCELLED: (JobState.CANCELLED,),
    }
    for at_s, step in enumerate(paths[state]):
        table.move("a", step, float(at_s))
    return table


@pytest.mark.parametrize(("start", "end"), itertools.product(JobState, JobState))
def test_moves_are_exactly_those_of_the_table(start, end):
    table = table_in(start)
    if end in TRANSITIONS[start]:
        assert table.move("a", end, 9.0).state is end
    else:
        with pytest.raises(PlexRLError, match=r"cannot become"):
            table.move("a", end, 9.0)
        assert table["a"].state is start


def test_a_name_in_use_is_refused_and_a_failed_job_may_come_back():
    table = table_in(JobState.RUNNING)
    with pytest.raises(JobError, match="'a' is taken by a job that is running"):
        table.add(facts(), Placement("g"), 1.0)
    table.move("a", JobState.FAILED, 2.0, "engine died")
    assert table["a"].error == "engine died"
    assert table.add(facts(), Placement("g"), 3.0).state is JobState.STARTING


def test_a_finished_name_stays_taken():
    with pytest.raises(JobError, match="is finished"):
        table_in(JobState.FINISHED).add(facts(), Placement("g"), 1.0)


def test_an_iteration_replayed_after_a_rollback_counts_once():
    table = table_in(JobState.RUNNING)
    for index in (0, 1, 1, 2):
        table.commit(IterationRecord("a", index, 0.0, 1.0))
        table.check()
    assert [r.iteration for r in table["a"].iterations] == [0, 1, 2]


def test_a_driver_that_resumes_says_what_is_committed():
    table = table_in(JobState.RUNNING)
    table.commit(IterationRecord("a", 0, 0.0, 1.0))
    table.commit(IterationRecord("a", 1, 1.0, 2.0))
    table.resume_at("a", 1)
    assert [r.iteration for r in table["a"].iterations] == [0]
    assert table["a"].num_committed == 1


def test_more_iterations_than_the_job_has_break_an_invariant():
    table = JobTable()
    table.add(facts(iterations=1), Placement("g"), 0.0)
    for index in (0, 1):
        table.commit(IterationRecord("a", index, 0.0, 1.0))
    with pytest.raises(PlexRLError, match="2 of 1 iterations"):
        table.check()


def test_an_unknown_job_lists_the_known_ones():
    with pytest.raises(JobError, match="no job is called 'b' here; known: a"):
        table_in(JobState.RUNNING)["b"]


def test_seconds_of_iterations_follow_commits_and_rollbacks():
    table = table_in(JobState.RUNNING)
    for index in range(3):
        table.commit(IterationRecord("a", index, float(index), index + 0.5))
    assert table["a"].iterations.total_s == 1.5
    table.resume_at("a", 1)
    assert table["a"].iterations.total_s == 0.5
    table.commit(IterationRecord("a", 1, 5.0, 7.0))
    assert table["a"].iterations.total_s == 2.5


def test_active_jobs_are_found_by_the_worker_of_their_driver():
    table = JobTable()
    for name in "ab":
        table.add(facts(name=name), "g", 0.0)
    table.set_driver("a", "tcp://w")
    table.check()
    assert (table.driven_by(""), table.driven_by("tcp://w")) == (("b",), ("a",))
    assert table.num_driven_by("tcp://w") == 1
    table.move("a", JobState.FAILED, 1.0)
    table.set_driver("a", "")
    table.check()
    assert (table.driven_by(""), table.driven_by("tcp://w")) == (("b",), ())
    table.add(facts(name="a"), "g", 2.0)
    assert table.driven_by("") == ("b", "a")


def test_of_the_jobs_that_ended_the_newest_are_shown_among_the_others_by_arrival():
    table = JobTable()
    for index in range(6):
        table.add(facts(f"j{index}"), Placement("g"), float(index))
    for name in ("j4", "j0", "j2", "j1"):
        table.move(name, JobState.FAILED, 10.0)
    assert [entry.facts.name for entry in table.newest(2)] == ["j1", "j2", "j3", "j5"]
    assert [entry.facts.name for entry in table.active()] == ["j3", "j5"]
    table.add(facts("j0"), Placement("g"), 20.0)
    assert [entry.facts.name for entry in table.newest(1)] == ["j0", "j1", "j3", "j5"]
    assert len(table.newest(9)) == 6
