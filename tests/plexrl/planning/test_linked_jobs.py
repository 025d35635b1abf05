"""Jobs over several groups get an order, where a simulation says that it is worth following."""

from dataclasses import replace

import pytest

import solver
from plexrl.core.placement import Arrangement, Placement
from plexrl.planning.arranging import forecast, simulated
from plexrl.planning.config import PlanningConfig
from plexrl.planning.facts import GroupFacts, PlannedJob
from plexrl.planning.planner import Planner, solve
from plexrl.planning.problems import EstimatedJob, build_problem, linked_circles
from plexrl.planning.profiles import OpEstimate
from solver.dispatch.arbiter import Arbiter
from solver.dispatch.events import PlanAdopted

GROUPS = tuple(GroupFacts(f"g{n}", 1000, 8) for n in range(4))


def entry(name, *places, roll_s=0.6, train_s=0.3, ops=(), **options):
    """A job at home on the first place, that samples on the second one, if any."""
    home, *rollout = places
    job = PlannedJob(name, memory_bytes=10, copy_bytes=3, slowdown_limit=9.0, **options)
    found = (
        OpEstimate("actor.rollout.0", roll_s, 0.1, 0.0, True),
        *ops,
        OpEstimate("actor.train.0", train_s, 0.0, 0.02, True),
    )
    return EstimatedJob(
        job, Placement.of(home, {"rollout": rollout[0]} if rollout else None), found
    )


def planner_with(*entries, budget_s=0.0):
    planner = Planner(PlanningConfig(budget_s=budget_s, is_rearranging=False))
    for group in GROUPS:
        planner.group_added(group)
    for found in entries:
        hints = tuple((op.op, op.busy_s, op.wait_s) for op in found.ops)
        pins = {"train": found.placement.home}
        pins |= {"rollout": found.placement.groups[-1]} if found.placement.guests else {}
        kind = Arrangement.SPLIT if found.placement.guests else Arrangement.COLOCATED
        planner.job_arrived(replace(found.job, ops=hints, arrangement=kind, pins=pins))
    return planner


def test_every_op_is_planned_on_the_group_it_runs_on():
    jobs = entry("a", "g0", "g1"), entry("b", "g0", "g2")
    problem = build_problem(jobs, GROUPS)
    assert [op.group for op in problem.job("a").ops] == ["g1", None]
    assert (problem.job("b").pinned_group, problem.is_linked) == ("g0", True)
    assert problem.job("a").staleness == 0


def test_what_runs_ahead_on_other_groups_is_planned_so():
    logprob = OpEstimate("actor.logprob.0", 0.1, 0.0, 0.0, True)
    apart = entry("a", "g0", "g1", ops=(logprob,), staleness=2)
    problem = build_problem([apart, entry("b", "g0", staleness=1)], GROUPS)
    # The logprobs are computed at home, where nothing can run ahead of the training.
    assert (problem.job("a").ahead_ops, problem.job("a").staleness) == (1, 2)
    assert (problem.job("b").ahead_ops, problem.job("b").staleness) == (0, 0)


SYNC = OpEstimate("actor.sync.0", 0.1, 0.0, 0.0, True)


def test_a_sync_holds_the_group_that_samples_and_the_home():
    gang = entry("gang", "g0", "g1", ops=(SYNC,), staleness=1)
    linked, beside, free = entry("a", "g1", "g2"), entry("b", "g2"), entry("c", "g3")
    problem = build_problem([gang, linked, beside, free], GROUPS)
    assert [problem.job("gang").groups_of(op) for op in problem.job("gang").ops] == [
        ("g1",),
        ("g1", "g0"),
        ("g0",),
    ]
    # Its rollouts cannot run ahead: the sync that follows them needs their group.
    assert problem.job("gang").staleness == 0
    ((groups, jobs),) = linked_circles([gang, linked, beside, free])
    assert (groups, len(jobs)) == ({"g0", "g1", "g2"}, 3)


def test_the_arbiter_gets_an_order_with_gangs_where_the_simulation_confirms_it():
    gangs = [entry(name, "g0", "g1", ops=(SYNC,)) for name in "ab"]
    planner = planner_with(*gangs)
    proposal = solve(planner.request("first plan", 0.0))
    assert proposal.is_verified
    served = simulated([found.spot for found in proposal.request.jobs])
    planned = simulated([found.spot for found in proposal.request.jobs], proposal.dispatch)
    assert planned.rate >= served.rate
    assert forecast([found.spot for found in proposal.request.jobs]) == served
    dispatch = planner.adopt(proposal, 0.0)
    ops = {group: [slot.op for slot in order] for group, order in dispatch.orders.items()}
    assert ops["g0"].count("actor.sync.0") == ops["g1"].count("actor.sync.0") == 2
    arbiter = Arbiter()
    arbiter.handle(PlanAdopted(dispatch), 0)
    arbiter.check()
    assert planner.request("period", 10.0).to_beat == proposal.plan


def test_the_arbiter_gets_an_order_for_every_group_of_split_jobs():
    planner = planner_with(entry("a", "g0", "g1"), entry("b", "g0", "g1"))
    proposal = solve(planner.request("first plan", 0.0))
    assert proposal.is_verified
    dispatch = planner.adopt(proposal, 0.0)
    served = {group: {(s.job, s.op) for s in order} for group, order in dispatch.orders.items()}
    assert served == {
        "g0": {("a", "actor.train.0"), ("b", "actor.train.0")},
        "g1": {("a", "actor.rollout.0"), ("b", "actor.rollout.0")},
    }
    arbiter = Arbiter()
    arbiter.handle(PlanAdopted(dispatch), 0)
    arbiter.check()
    assert planner.request("period", 10.0).to_beat == proposal.plan


def test_the_promise_is_what_the_simulator_says_of_the_order_and_is_recorded():
    planner = planner_with(entry("a", "g0", "g1"), entry("b", "g0", "g2"), entry("c", "g3"))
    request = planner.request("first plan", 0.0)
    proposal = solve(request)
    planner.adopt(proposal, 0.0)
    told = planner.plan_json()["in_force"]
    linked = [found.spot for found in request.jobs if found.name != "c"]
    promised = simulated(linked, proposal.dispatch).periods_s
    assert {name: told["cycles"][name]["predicted_s"] for name in "ab"} == promised
    assert told["cycles"]["c"]["predicted_s"] == pytest.approx(1.0)
    plan = solver.Plan.from_json(told["plan"])
    assert {timeline.group for timeline in plan.timelines} == {"g0", "g1", "g2", "g3"}
    assert solver.verify(solver.Problem.from_json(told["problem"]), plan).is_valid


def test_jobs_that_fit_no_cycle_are_served_as_they_come_and_the_plan_says_so():
    # In one iteration of the long job the short one passes two, unless both keep one cycle.
    short = entry("short", "g0", "g1", roll_s=0.5, train_s=1.0)
    long = entry("long", "g0", "g2", roll_s=2.0, train_s=1.0)
    request = planner_with(short, long).request("first plan", 0.0)
    proposal = solve(request)
    assert proposal.is_verified
    assert proposal.dispatch.orders == {}
    assert "first ready, first served on g0, g1, g2: that gets 13.1 % more" in proposal.note
    assert proposal.periods_s == simulated([found.spot for found in request.jobs]).periods_s


@pytest.mark.slow
def test_the_order_of_a_pool_with_private_rollouts_is_proven():
    pool = [entry(f"j{n}", "g0", f"g{n + 1}") for n in range(3)]
    proposal = solve(planner_with(*pool, budget_s=20.0).request("first plan", 0.0))
    assert proposal.status == "optimal"
    assert proposal.objective_s == proposal.bound_s == pytest.approx(4 * 1.0)
