"""Decides who shares which groups, in what order, with proof; knows integers only."""

from __future__ import annotations

from solver.bounds import Bound, BoundClass, Proof
from solver.certificate import Certificate
from solver.errors import DispatchError, PlanError, ProblemError, SolverError
from solver.explain import explain
from solver.objective import Objective
from solver.plan import Plan, Timeline, Timing
from solver.planner import greedy, plan
from solver.problem import Group, Job, Op, Problem
from solver.recheck import Recheck, recheck
from solver.result import Incumbent, Result, Source, Status
from solver.verify import Verification, verify

__all__ = [
    "Bound",
    "BoundClass",
    "Certificate",
    "DispatchError",
    "Group",
    "Incumbent",
    "Job",
    "Objective",
    "Op",
    "Plan",
    "PlanError",
    "Problem",
    "ProblemError",
    "Proof",
    "Recheck",
    "Result",
    "SolverError",
    "Source",
    "Status",
    "Timeline",
    "Timing",
    "Verification",
    "explain",
    "greedy",
    "plan",
    "recheck",
    "verify",
]
