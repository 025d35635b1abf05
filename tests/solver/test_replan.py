from dataclasses import replace

import solver
from solver import Objective, Source
from solver.problem import Problem
from solver.verify import verify
from tests.solver.packings import random_pool

PROBLEM = random_pool(60, 2)


def _replanned(problem, previous):
    result = solver.plan(problem, previous=previous, objective=Objective.GROUPS, budget_s=0.0)
    assert verify(problem, result.plan).violations == ()
    return result


def test_a_job_that_comes_changes_no_group_but_its_own():
    before = solver.greedy(PROBLEM)
    newcomer = replace(PROBLEM.jobs[3], id="newcomer")
    after = _replanned(Problem(PROBLEM.groups, (*PROBLEM.jobs, newcomer)), before)
    assert after.source is Source.REPLANNED
    touched = after.plan.placement["newcomer"]
    for job, group in before.placement.items():
        assert after.plan.placement[job] == group
    for timeline in before.timelines:
        assert timeline.group == touched or after.plan.timeline(timeline.group) == timeline


def test_a_job_that_leaves_moves_nobody():
    before = solver.greedy(PROBLEM)
    gone = PROBLEM.jobs[0].id
    after = _replanned(Problem(PROBLEM.groups, PROBLEM.jobs[1:]), before)
    assert {job: g for job, g in before.placement.items() if job != gone} == after.plan.placement


def test_a_job_that_outgrows_its_group_is_moved():
    before = solver.greedy(PROBLEM)
    crowded = next(t for t in before.timelines if len({x.job for x in t.timings}) > 1)
    name = crowded.timings[0].job
    jobs = tuple(replace(j, memory_bytes=150) if j.id == name else j for j in PROBLEM.jobs)
    after = _replanned(Problem(PROBLEM.groups, jobs), before)
    assert sum(group == after.plan.placement[name] for group in after.plan.placement.values()) == 1
