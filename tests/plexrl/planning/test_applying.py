"""A plan made elsewhere serves, or is refused with the difference."""

import json
from dataclasses import replace

import pytest

import solver
from plexrl.core.placement import Arrangement, Placement
from plexrl.errors import JobError
from plexrl.planning.applying import proposal_of
from plexrl.planning.config import PlanningConfig
from plexrl.planning.planner import GroupFacts, PlannedJob, Planner
from plexrl.planning.problems import build_problem

HINTS = (("roll", 0.3, 0.2), ("train", 0.1, 0.02))


@pytest.fixture
def planner():
    planner = Planner(PlanningConfig(budget_s=0.0))
    for group in ("g", "h"):
        planner.group_added(GroupFacts(group, 1000, 3))
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


def applied(planner, text, jobs):
    return proposal_of(*planner.brought(text, jobs, 1.0))


def test_a_plan_made_for_other_lengths_serves_with_those_measured(planner):
    proposal = applied(planner, offline(), ["a", "b"])
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
        applied(planner, plan, ["a", "b"])


def test_a_draining_group_takes_no_plan(planner):
    planner.let_in("g", is_open=False)
    with pytest.raises(JobError, match="drain: g"):
        applied(planner, offline(), ["a", "b"])


def test_a_plan_that_breaks_a_limit_here_is_refused(planner):
    planner.job_arrived(PlannedJob("c", HINTS, slowdown_limit=1.0))
    with pytest.raises(JobError, match="slowed to"):
        applied(planner, offline(jobs=("a", "b", "c")), ["a", "b", "c"])


def test_a_job_nobody_has_measured_is_named(planner):
    planner.job_arrived(PlannedJob("c"))
    with pytest.raises(JobError, match="functions of c take"):
        applied(planner, offline(jobs=("a", "b", "c")), ["a", "b", "c"])


ROLLS = (("actor.rollout.0", 0.3, 0.2), ("actor.train.0", 0.1, 0.02))


def split(name, rollout="h", home="g", kind=Arrangement.SPLIT, **options):
    """A job that trains on one group and samples on another."""
    options = {"memory_bytes": 10, "copy_bytes": 3, "slowdown_limit": 9.0} | options
    return PlannedJob(name, ROLLS, arrangement=kind, **options), (home, rollout)


def offline_split(*jobs):
    """A plan for jobs that are on these groups, made for other lengths."""
    built = tuple(
        solver.Job(
            job.name,
            tuple(
                solver.Op(op, 200, 50, group=rollout if "rollout" in op else None)
                for op, _, _ in job.ops
            ),
            job.memory_bytes,
            100_000,
            pinned_group=home,
            ahead_ops=int(job.staleness > 0),
            staleness=job.staleness,
        )
        for job, (home, rollout) in jobs
    )
    groups = tuple(solver.Group(name, 1000) for name in "ghk")
    return json.dumps(solver.greedy(solver.Problem(groups, built)).to_json())


@pytest.fixture
def pool():
    """Two jobs that train on one group and sample on groups of their own."""
    planner = Planner(PlanningConfig(budget_s=0.0))
    for group in "ghk":
        planner.group_added(GroupFacts(group, 100, 2))
    for job, (home, rollout) in (split("a"), split("b", "k", staleness=1)):
        planner.job_arrived(replace(job, pins={"train": home, "rollout": rollout}))
        planner.job_arrived(job)
    return planner


def test_a_plan_for_split_jobs_serves_with_the_lengths_measured_here(pool):
    plan = offline_split(split("a"), split("b", "k", staleness=1))
    proposal = applied(pool, plan, ["a", "b"])
    assert proposal.is_verified
    assert [entry.placement for entry in proposal.request.jobs] == [
        Placement.of("g", {"rollout": "h"}),
        Placement.of("g", {"rollout": "k"}),
    ]
    served = {group: [s.job for s in order] for group, order in proposal.dispatch.orders.items()}
    assert served == {"g": ["a", "b"], "h": ["a"], "k": ["b"]}
    assert dict(proposal.cycles_s) == pytest.approx(dict.fromkeys("ghk", 0.62))
    problem = build_problem(proposal.request.jobs, proposal.request.groups)
    assert solver.verify(problem, proposal.plan).is_valid


def test_a_plan_puts_split_jobs_on_other_groups(pool):
    proposal = applied(pool, offline_split(split("a", "g", "k"), split("b", "h", "k")), ["a", "b"])
    placements = {entry.name: str(entry.placement) for entry in proposal.request.jobs}
    assert placements == {"a": "k+g", "b": "k+h"}


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (
            offline_split(split("a", "g"), split("b", "k")),
            "'a' is arranged split, and is on g ",
        ),
        (offline_split(split("a"), split("b", "k")).replace('"h"', '"q"'), "or drain: q"),
        (offline_split(split("a"), split("b"), split("c", "h", "k")), "only in the plan: c"),
        (offline_split(split("a", "h", "k"), split("b", "h")), "wants rollout on group 'k'"),
    ],
)
def test_a_plan_for_other_arrangements_is_refused_with_the_difference(pool, plan, told):
    job, _ = split("b", staleness=1, pins={"rollout": "k"})
    pool.job_arrived(job)
    with pytest.raises(JobError, match=told):
        applied(pool, plan, ["a", "b"])


def test_memory_of_copies_and_private_groups_are_looked_at(pool):
    plan = offline_split(split("a"), split("b", "h"))
    assert applied(pool, plan, ["a", "b"]).is_verified
    for options, told in (
        ({"copy_bytes": 98}, "jobs on group 'h' need 1 bytes more than it has"),
        ({"kind": Arrangement.PRIVATE_ROLLOUT}, "'h' is the private rollout group of a job"),
    ):
        pool.job_arrived(split("a", **options)[0])
        with pytest.raises(JobError, match=f"does not hold here: .*{told}"):
            applied(pool, plan, ["a", "b"])
