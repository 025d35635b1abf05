"""Errors of the solver, grouped by what the caller does about them.

::

    SolverError
    ├── ProblemError     the problem is wrong: change the file or the objects
    ├── PlanError        a plan is malformed or does not belong to the problem
    └── DispatchError    an event reached the arbiter that its state forbids (a bug of ours)
"""

from __future__ import annotations


class SolverError(Exception):
    """Root of the tree; every message names the object, the value and the remedy."""

    kind = "solver"


class ProblemError(SolverError):
    """The problem breaks a rule; the message gives the path inside it."""

    kind = "problem"


class PlanError(SolverError):
    """The plan is malformed, or was made for another problem."""

    kind = "plan"


class DispatchError(SolverError):
    """An event that the arbiter's state forbids; the message has the function's history."""

    kind = "dispatch"
