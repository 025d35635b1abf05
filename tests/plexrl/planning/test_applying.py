"""A plan made elsewhere serves, or is refused with the difference."""

import json

import pytest

import solver
from plexrl.errors import JobError
from plexrl.planning.config import PlanningConfig
from plexrl.planning.planner import GroupFacts, PlannedJob, Planner
from plexrl.planning.problems import build_problem

HINTS = (("roll", 0.3, 0.2), ("train", 0.1, 0.02))


@pytest.fixture
def planner():
    planner = Planner(PlanningConfig(budget_s=0.0))
    for group in ("g", "h"):
        planner.group_added(GroupFacts(group, 1000, 2))
    for name in ("a", "b"):
        planner.job_arrived(PlannedJob(name, HINTS, slowdown_limit=3.0))
    return planner


def offline(groups=("g",), jobs=("a", "b"), length_ticks=200):
    ops = tuple(solver.Op(op, length_ticks, 50) for op, _, _ in HINTS)
    problem = solver.Problem(
        tuple(solver.Group(group, 1000) for group in groups),
        tuple(solver.Job(job, ops, 1, 100_000) for job in jobs),
    )
    return json.dumps(solver.greedy(problem).to_json())


def test_a_plan_made_for_other_lengths_serves_with_those_measured(planner):
    proposal = planner.applied(offline(), ["a", "b"], 1.0)
    assert proposal.plan.placement == {"a": "g", "b": "g"}
    assert proposal.is_verified
    problem = build_problem(proposal.request.jobs, proposal.request.groups)
    assert solver.verify(problem, proposal.plan).is_valid
    planner.adopt(proposal, 1.0)
    assert planner.status().status == "applied"
    assert {entry.split(":")[0] for entry in planner.status().order["g"]} == {"a", "b"}


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (offline(jobs=("a",)), "jobs only in the cluster: b"),
        (offline(jobs=("a", "b", "c")), "jobs only in the plan: c"),
        (offline(groups=("k",)), r"not there or drain: k \(there: g, h\)"),
        ("{}", "plexrl plan --output"),
    ],
)
def test_a_plan_for_another_cluster_is_refused_with_the_difference(planner, plan, told):
    with pytest.raises(JobError, match=told):
        planner.applied(plan, ["a", "b"], 1.0)


def test_a_draining_group_takes_no_plan(planner):
    planner.let_in("g", is_open=False)
    with pytest.raises(JobError, match="drain: g"):
        planner.applied(offline(), ["a", "b"], 1.0)


def test_a_plan_that_breaks_a_limit_here_is_refused_and_planning_goes_on(planner):
    planner.job_arrived(PlannedJob("c", HINTS, slowdown_limit=1.0))
    with pytest.raises(JobError, match="slowed to"):
        planner.applied(offline(jobs=("a", "b", "c")), ["a", "b", "c"], 1.0)
    assert planner.due(1.0) is not None


def test_a_job_nobody_has_measured_is_named(planner):
    planner.job_arrived(PlannedJob("c"))
    with pytest.raises(JobError, match="functions of c take"):
        planner.applied(offline(jobs=("a", "b", "c")), ["a", "b", "c"], 1.0)
