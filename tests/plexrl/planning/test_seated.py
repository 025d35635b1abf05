"""A plan of several pools serves by the rule it was scored with, or is refused."""

import json
from dataclasses import replace

import pytest

from plexrl.core.placement import Arrangement, Placement
from plexrl.errors import JobError
from plexrl.planning.applying import proposal_of
from plexrl.planning.arranging import sim_job
from plexrl.planning.config import PlanningConfig
from plexrl.planning.planner import GroupFacts, PlannedJob, Planner, solve
from solver.dispatch.arbiter import Arbiter
from solver.dispatch.events import (
    Ended,
    FunctionRef,
    GroupAdded,
    PlanAdopted,
    Ready,
    Started,
    Woke,
)
from solver.dispatch.instructions import Admit, WakeAt
from solver.dispatch.rules import FirstReady, PlanOrderWithBackfill
from solver.dispatch.shortest import ShortestFirst
from solver.dispatch.yielding import YieldRule
from solver.simulate import Handoff, simulate

CONFIG = PlanningConfig(budget_s=0.0)
LENGTHS = {"long": (0.907, 0.403), "mid": (0.501, 0.299), "short": (0.103, 0.151)}
LAGS = dict.fromkeys(LENGTHS, 0.5)


def arrived(name, **options):
    rollout_s, train_s = LENGTHS[name]
    hints = (("actor.rollout.0", rollout_s, 0.037), ("actor.train.0", train_s, 0.011))
    options = {"arrangement": Arrangement.SPLIT, "slowdown_limit": 9.0} | options
    return PlannedJob(name, hints, memory_bytes=10, copy_bytes=3, **options)


@pytest.fixture
def planner():
    planner = Planner(CONFIG)
    for group in ("roll", "train"):
        planner.group_added(GroupFacts(group, 100, 4))
    for name in LENGTHS:
        planner.job_arrived(arrived(name))
    return planner


def seats(lags=LAGS, rollout=("roll",), train=("train",), jobs=tuple(LENGTHS)):
    rows = [{"job": job, "rollout": list(rollout), "train": list(train)} for job in jobs]
    rule = {} if lags is None else {"rule": {"name": "shortest_first", "tolerances": lags}}
    return json.dumps({"format": 1, "seats": rows, **rule})


def applied(planner, text=None):
    return proposal_of(*planner.brought(text or seats(), planner._jobs, 1.0))


def in_simulation(proposal, dispatch, rule):
    """What starts when, with the lengths of a proposal."""
    jobs = [sim_job(*entry.spot, 15.0) for entry in proposal.request.jobs]
    done = simulate(
        jobs, dispatch, rule, until_s=15.0, handoff=Handoff(0, 0), yielding=YieldRule(max_yields=0)
    )
    return sorted(done.records, key=lambda lease: (lease.started_s, lease.group))


def starts(leases):
    return [(lease.group, lease.job, lease.op, lease.started_s) for lease in leases]


def in_arbiter(leases, plan):
    """Who is granted what, in order, where an arbiter as the runtime has it is told the same."""
    rule = PlanOrderWithBackfill(slack=CONFIG.slack, overdue=CONFIG.overdue)
    arbiter = Arbiter(rule, yielding=YieldRule(max_yields=0))
    events = [(0, 0, GroupAdded("roll")), (0, 0, GroupAdded("train")), (0, 1, PlanAdopted(plan))]
    for lease in leases:
        ready, began, ended = (
            round(1000 * at_s) for at_s in (lease.ready_s, lease.started_s, lease.ended_s)
        )
        ref = FunctionRef(
            lease.id, lease.job, lease.op, lease.iteration, (lease.group,), ended - began
        )
        events += [
            (ended, 2, Ended(lease.id)),
            (ready, 3, Ready(ref)),
            (began, 4, Started(lease.id)),
        ]
    out, granted = [], []
    events.sort(key=lambda entry: entry[:2])
    for tick, _, event in events:
        due = {entry.tick for entry in out if isinstance(entry, WakeAt) and entry.tick < tick}
        for at in sorted(due):
            granted += arbiter.handle(Woke(), at)
        out = [entry for entry in out if isinstance(entry, WakeAt) and entry.tick >= tick]
        out += arbiter.handle(event, tick)
        granted += out
    return [entry.id for entry in granted if isinstance(entry, Admit)]


def test_an_applied_plan_is_served_as_it_was_scored_in_simulator_and_runtime_alike(planner):
    proposal = applied(planner)
    plan = planner.adopt(proposal, 1.0)
    scored = in_simulation(proposal, None, ShortestFirst(LAGS))
    assert starts(in_simulation(proposal, plan, PlanOrderWithBackfill())) == starts(scored)
    assert starts(in_simulation(proposal, None, FirstReady())) != starts(scored)
    granted = in_arbiter(scored, plan)
    for group in ("roll", "train"):
        here = [lease.id for lease in scored if lease.group == group]
        assert [name for name in granted if name in set(here)] == here


def test_seats_become_placements_and_a_simulation_says_how_jobs_get_on(planner):
    proposal = applied(planner)
    expected = Placement.of("train", {"rollout": "roll"})
    assert {entry.placement for entry in proposal.request.jobs} == {expected}
    slowdowns = dict(proposal.slowdowns)
    assert slowdowns.keys() == LENGTHS.keys()
    assert 1 < max(slowdowns.values()) < 9
    assert proposal.dispatch.orders == {}
    planner.adopt(proposal, 1.0)
    status = planner.status()
    assert (status.status, status.is_verified) == ("applied", True)
    assert "shortest first on roll, train" in status.reason
    rule = {"name": "shortest_first", "tolerances": LAGS}
    assert planner.plan_json()["in_force"]["rules"] == {"roll": rule, "train": rule}


def replanned(planner):
    proposal = solve(planner.request("period", 2.0))
    return planner.adopt(proposal, 2.0), proposal.note


def test_later_plans_keep_the_rule_until_one_is_asked_for(planner):
    planner.adopt(applied(planner), 1.0)
    for _ in range(2):
        plan, note = replanned(planner)
        assert plan.rules == dict.fromkeys(["roll", "train"], ShortestFirst(LAGS))
        assert plan.orders == {}
        assert "shortest first on roll, train" in note
    planner.job_left("mid")
    assert replanned(planner)[0].rules.keys() == {"roll", "train"}
    planner.ask("as I said", is_anew=True)
    assert replanned(planner)[0].rules == {}


def test_a_job_that_the_plan_leaves_out_ends_its_rule_where_it_comes(planner):
    planner.group_added(GroupFacts("other", 100, 4))
    planner.adopt(applied(planner), 1.0)
    newcomer = replace(arrived("mid"), name="new", arrangement=Arrangement.COLOCATED)
    planner.job_arrived(replace(newcomer, pins={"train": "other"}))
    assert replanned(planner)[0].rules.keys() == {"roll", "train"}
    planner.job_arrived(replace(newcomer, name="newer", pins={"train": "train"}))
    assert replanned(planner)[0].rules == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (seats(jobs=("long", "mid")), "jobs only in the cluster: short"),
        (seats(rollout=("q",)), "not there or drain: q"),
        (seats(rollout=("roll", "train")), r"sampled on roll, train; a cluster .*group: NAME"),
        (seats(lags=None), "does not say by which rule .*plan --output"),
        (seats(lags={"long": 0.5, "mid": 1.0}), "does not say by which rule .* serve short"),
        (seats(lags=dict.fromkeys(LENGTHS, -1)), "tolerance -1.0; give a finite lag"),
        (seats(rollout=("train",)), "'long' is arranged split, and is on train"),
        (seats(jobs=(*LENGTHS, "mid")), "seats a job twice"),
        ('{"format": 1, "seats": 5}', "seats is 5; give a list.*plan --output"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_with_the_reason(planner, text, told):
    with pytest.raises(JobError, match=told):
        applied(planner, text)


def test_a_plan_that_breaks_a_limit_with_the_lengths_of_here_is_refused(planner):
    planner.job_arrived(arrived("short", slowdown_limit=1.2))
    with pytest.raises(JobError, match=r"'short' is slowed to .*, its limit is 1\.2"):
        applied(planner)
