"""Where drivers live, and when one is given up."""

from plexrl.core.jobs import JobFacts, JobTable
from plexrl.core.placement import Placement
from plexrl.core.status import JobState
from plexrl.runtime.drivers import MAX_DEATHS, DriverPlacement


def table(*names):
    jobs = JobTable()
    for name in names:
        jobs.add(JobFacts(name, (), 1, 10, 2.0, 1.0, {}), Placement("g"), 0.0)
    return jobs


def placed(jobs, workers, drivers):
    sent = []
    drivers.place(jobs, workers, lambda worker, drive: sent.append((worker, drive)))
    return sent


def test_drivers_go_to_the_worker_with_fewest():
    jobs, drivers = table("a", "b", "c"), DriverPlacement("run")
    for name in jobs.names():
        drivers.add(name, b"", is_resumed=False)
    workers = [worker for worker, _ in placed(jobs, ("x", "y"), drivers)]
    assert workers == ["x", "y", "x"]
    assert placed(jobs, ("x", "y"), drivers) == []


def test_a_driver_that_starts_again_has_new_keys_and_goes_on():
    jobs, drivers = table("a"), DriverPlacement("run")
    drivers.add("a", b"spec", is_resumed=False)
    ((_, first),) = placed(jobs, ("x",), drivers)
    jobs.set_driver("a", "")
    ((_, second),) = placed(jobs, ("y",), drivers)
    assert first.run != second.run
    assert (first.is_resumed, second.is_resumed) == (False, True)


def test_jobs_that_ended_and_jobs_without_workers_get_none():
    jobs, drivers = table("a", "b"), DriverPlacement("run")
    for name in jobs.names():
        drivers.add(name, b"", is_resumed=False)
    jobs.move("b", JobState.CANCELLED, 1.0)
    assert placed(jobs, (), drivers) == []
    assert [drive.name for _, drive in placed(jobs, ("x",), drivers)] == ["a"]


def test_a_driver_is_given_up_only_without_progress():
    drivers = DriverPlacement("run")
    assert all(drivers.note_death("a", 3) for _ in range(MAX_DEATHS - 1))
    assert drivers.note_death("a", 4)
    assert all(drivers.note_death("a", 4) for _ in range(MAX_DEATHS - 2))
    assert not drivers.note_death("a", 4)


def test_a_driver_is_missed_when_it_is_absent_twice():
    drivers = DriverPlacement("run")
    assert drivers.missed("x", ["a", "b"]) == ()
    assert drivers.missed("y", ["a"]) == ()
    assert drivers.missed("x", ["a"]) == ("a",)
    # It starts again.
    assert drivers.missed("x", ["a"]) == ()
    assert drivers.missed("x", []) == ()
    assert drivers.missed("x", ["a"]) == ()
