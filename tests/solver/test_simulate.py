"""The simulator runs jobs through the arbiter and keeps the books right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.dispatch.events import DispatchPlan, Slot
from solver.dispatch.rules import FirstReady, LargestLagFirst, PlanOrderWithBackfill
from solver.dispatch.yielding import YieldRule
from solver.errors import ProblemError
from solver.simulate import Handoff, SimJob, SimOp, job_by_job, simulate
from solver.trace import Outcome

INSTANT = Handoff(cold_ticks=0, ahead_ticks=0)


def job(name, *ops, iterations=40, duration_cv=0.1, wait_cv=0.3, swap_s=0.01):
    steps = tuple(SimOp(op, duration_s, wait_s) for op, duration_s, wait_s in ops)
    return SimJob(name, steps, iterations, duration_cv, wait_cv, swap_s)


def loop(name, scale=1.0, wait_s=0.5):
    return job(name, ("roll", 0.6 * scale, wait_s), ("train", 0.3 * scale, 0.05))


def test_a_job_alone_takes_its_time_alone():
    result = simulate([loop("a")], handoff=INSTANT)
    # Its state is brought in once.
    assert result.makespan_ticks == result.alone_ticks["a"] + 10
    assert len(result.records) == 80
    assert [record.swap_s for record in result.records[:2]] == [0.01, 0.0]


def test_leases_of_one_group_do_not_overlap_and_none_is_missing():
    result = simulate([loop(name) for name in "abc"])
    assert len(result.records) == 3 * 80
    assert len({record.id for record in result.records}) == 3 * 80
    for before, after in zip(result.records, result.records[1:], strict=False):
        assert before.ended_s <= after.started_s
        assert after.ready_s <= after.started_s


def test_leases_without_swap_add_up_to_the_busy_time():
    result = simulate([loop("a"), loop("b")])
    for name in "ab":
        busy_s = sum(record.busy_s for record in result.records if record.job == name)
        assert round(busy_s * 1000) == result.busy_ticks[name]


def test_the_same_seed_gives_the_same_leases_and_another_one_others():
    jobs = [loop("a"), loop("b")]
    assert simulate(jobs, seed=1).records == simulate(jobs, seed=1).records
    assert simulate(jobs, seed=1).records != simulate(jobs, seed=2).records


def test_the_drawn_lengths_do_not_depend_on_the_rule():
    jobs = [loop("a"), loop("b"), loop("c")]

    def lengths(rule):
        records = simulate(jobs, job_by_job(jobs), rule).records
        return {record.id: round(record.busy_s * 1000) for record in records}

    assert lengths(FirstReady()) == lengths(LargestLagFirst())


def test_the_mean_of_the_drawn_lengths_is_the_mean_asked_for():
    many = job("a", ("roll", 1.0, 0.0), iterations=2000, duration_cv=0.5)
    assert many.busy_ticks(seed=0) / 2000 == pytest.approx(1000, rel=0.05)


def test_slowdowns_and_saving_follow_from_the_finish_times():
    jobs = [job(name, ("roll", 0.5, 0.5), duration_cv=0, wait_cv=0, swap_s=0) for name in "ab"]
    result = simulate(jobs, job_by_job(jobs), handoff=INSTANT)
    # They fit into each other's waits, one half period apart.
    assert result.slowdowns == {"a": 1.0, "b": pytest.approx(1.0125)}
    assert result.saving == pytest.approx(0.5, abs=0.01)
    assert result.makespan_ratio == pytest.approx(1.0125)


def test_a_gang_holds_its_groups_at_once():
    both = ("group-0", "group-1")
    jobs = [
        SimJob("gang", (SimOp("sync", 0.2, 0.1, both),), 10),
        SimJob("a", (SimOp("roll", 0.1, 0.05, ("group-0",)),), 20),
        SimJob("b", (SimOp("roll", 0.1, 0.05, ("group-1",)),), 20),
    ]
    records = simulate(jobs).records
    spans = {}
    for record in records:
        if record.job == "gang":
            spans.setdefault(record.id, set()).add((record.started_s, record.ended_s))
    assert len(spans) == 10
    assert all(len(times) == 1 for times in spans.values())


def test_reversing_the_plan_changes_the_order_of_leases():
    jobs = [loop(name) for name in "abc"]
    forward = simulate(jobs, job_by_job(jobs)).records
    backward = simulate(jobs, job_by_job(jobs[::-1])).records
    assert [record.id for record in forward] != [record.id for record in backward]


FAMILIES = {
    "group binds, 3 alike": [loop(name) for name in "abc"],
    "group binds, 4 alike": [loop(name) for name in "abcd"],
    "group binds, unlike": [
        job("a", ("roll", 1.0, 0.6), ("train", 0.5, 0.05)),
        job("b", ("roll", 0.5, 1.0), ("train", 0.3, 0.05)),
        job("c", ("roll", 0.8, 0.2), ("train", 0.2, 0.05)),
    ],
    "waits bind, 2 alike": [job(n, ("roll", 0.2, 1.0), ("train", 0.1, 0.05)) for n in "ab"],
    "waits bind, 4 alike": [job(n, ("roll", 0.2, 2.0), ("train", 0.1, 0.05)) for n in "abcd"],
    "one long": [
        job("a", ("roll", 1.0, 2.0), ("train", 0.5, 0.05)),
        job("b", ("roll", 0.3, 0.3), ("train", 0.1, 0.05)),
        job("c", ("roll", 0.2, 0.3), ("train", 0.1, 0.05)),
    ],
    "one long among 4": [
        job("a", ("roll", 1.0, 3.0), ("train", 0.5, 0.05)),
        job("b", ("roll", 0.3, 0.3), ("train", 0.1, 0.05)),
        job("c", ("roll", 0.2, 0.3), ("train", 0.1, 0.05)),
        job("d", ("roll", 0.4, 0.3), ("train", 0.1, 0.05)),
    ],
}


def mean_ratio(jobs, rule, seeds):
    plan = job_by_job(jobs)
    return sum(simulate(jobs, plan, rule, seed=seed).makespan_ratio for seed in seeds) / len(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_makespan_is_within_five_percent_of_what_is_possible(family):
    assert mean_ratio(FAMILIES[family], PlanOrderWithBackfill(), range(4)) <= 1.05


@pytest.mark.slow
@pytest.mark.parametrize("family", ["one long", "one long among 4"])
def test_backfill_delays_the_longest_job_less_than_first_ready_does(family):
    jobs = FAMILIES[family]
    ours = mean_ratio(jobs, PlanOrderWithBackfill(), range(4))
    assert ours < mean_ratio(jobs, FirstReady(), range(4)) - 0.01
    assert ours < mean_ratio(jobs, PlanOrderWithBackfill(slack=2.0), range(4))


def test_jobs_of_one_name_are_refused():
    with pytest.raises(ProblemError, match="its own name"):
        simulate([loop("a"), loop("a")])


@pytest.mark.parametrize(("duration_s", "wait_s"), [(0, 0), (1, -1), (float("inf"), 0)])
def test_an_op_without_a_sensible_length_is_refused(duration_s, wait_s):
    with pytest.raises(ProblemError, match="'roll'"):
        SimOp("roll", duration_s, wait_s)


def test_a_job_without_ops_is_refused():
    with pytest.raises(ProblemError, match="at least one"):
        SimJob("a", (), 1)


def test_a_tape_says_how_long_everything_takes():
    tape = (((100, 50), (200, 0)), ((300, 50), (400, 0)))
    ops = (SimOp("roll", 1.0, 1.0), SimOp("train", 1.0, 1.0))
    result = simulate([SimJob("a", ops, 2, tape=tape)], handoff=INSTANT)
    assert result.makespan_ticks == 100 + 50 + 200 + 300 + 50 + 400
    assert result.ends_ticks == {"a": (350, 1100)}


def test_a_tape_of_another_length_is_refused():
    with pytest.raises(ProblemError, match="tape of 1 iterations, not 2"):
        SimJob("a", (SimOp("roll", 1.0, 0.0),), 2, tape=(((1, 0),),))


def ahead(staleness):
    ops = (SimOp("roll", 0.6, 0.0, ("rollout",)), SimOp("train", 0.4, 0.0, ("train",)))
    return SimJob("a", ops, 20, ahead_ops=1, staleness=staleness)


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_rollouts_run_ahead_by_no_more_than_the_staleness(staleness):
    records = simulate([ahead(staleness)], handoff=INSTANT).records
    trained = {r.iteration: r.ended_s for r in records if r.op == "train"}
    lags = [
        r.iteration - sum(end <= r.started_s for end in trained.values())
        for r in records
        if r.op == "roll"
    ]
    assert max(lags) == min(staleness, 1)


def test_running_ahead_takes_what_the_longer_part_takes():
    result = simulate([ahead(1)], handoff=INSTANT)
    assert result.makespan_ticks == 20 * 600 + 400
    assert result.alone_ticks["a"] == result.makespan_ticks


def test_a_job_begins_when_it_arrives():
    late = SimJob("late", (SimOp("roll", 0.1, 0.0),), 3, arrives_s=2.0)
    result = simulate([job("early", ("roll", 0.1, 0.1), iterations=5), late], handoff=INSTANT)
    first = min(r.started_s for r in result.records if r.job == "late")
    assert first >= 2.0
    assert result.slowdowns["late"] == pytest.approx(1.0, abs=0.15)


def test_a_simulation_that_stops_counts_whole_iterations_only():
    jobs = [loop("a"), loop("b")]
    part, whole = simulate(jobs, until_s=20.0), simulate(jobs)
    assert part.ends_ticks["a"] == whole.ends_ticks["a"][: part.iterations["a"]]
    assert part.makespan_ticks <= 20_000 + 5_000
    assert part.iterations["a"] < 40


def test_a_simulation_too_short_for_one_iteration_says_so():
    with pytest.raises(ProblemError, match="ended no iteration"):
        simulate([loop("a")], until_s=0.1)


def with_yielding_rolls(job):
    return replace(job, ops=tuple(replace(op, is_yieldable=op.name == "roll") for op in job.ops))


def test_what_yields_loses_nothing_and_others_wait_less():
    long = job("long", ("roll", 10.0, 0.0), ("train", 1.0, 0.0), iterations=10)
    short = job("short", ("roll", 1.0, 2.0), ("train", 0.5, 1.0), iterations=25)
    jobs = [with_yielding_rolls(long), with_yielding_rolls(short)]
    whole = simulate(jobs, yielding=YieldRule(max_yields=0))
    shared = simulate(jobs)
    assert not any(record.outcome is Outcome.YIELDED for record in whole.records)
    assert any(record.outcome is Outcome.YIELDED for record in shared.records)
    for result in (whole, shared):
        for name in ("long", "short"):
            busy_s = sum(record.busy_s for record in result.records if record.job == name)
            assert round(busy_s * 1000) == result.busy_ticks[name]
    assert shared.slowdowns["short"] < 1.1
    assert whole.slowdowns["short"] > 1.7
    assert shared.slowdowns["long"] < 1.4
    done = [record.id for record in shared.records if record.outcome is Outcome.DONE]
    assert len(done) == len(set(done)) == 2 * (10 + 25)


def test_a_later_plan_is_in_force_from_its_moment():
    jobs = [job(name, ("roll", 1.0, 1.0), iterations=12) for name in ("a", "b", "c")]
    orders = {
        names: DispatchPlan({"group-0": tuple(Slot(n, "roll", 1000, 1000) for n in names)})
        for names in ("abc", "cba")
    }
    changed = simulate(jobs, orders["abc"], handoff=INSTANT, later_plans=[(9.0, orders["cba"])])
    before = simulate(jobs, orders["abc"], handoff=INSTANT)

    def order(result, first_s, until_s):
        return [r.job for r in result.records if first_s <= r.started_s < until_s]

    assert order(changed, 0.0, 9.0) == order(before, 0.0, 9.0)
    assert order(changed, 9.0, 30.0) != order(before, 9.0, 30.0)
