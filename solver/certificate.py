"""What a bound by duals rests on: numbers that anyone can check against the problem.

Let every job pay its dual to the group that serves it, and every group of a kind of which there
are few keep its charge. If no set of jobs pays any group more than what serving it costs plus the
charge, then no plan is cheaper than all duals less all charges: this is weak duality, and whether
no set pays more is a knapsack problem that needs no solver (Farley 1990, Operations Research 38).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from solver.objective import MILLION, Objective, rate_millionths
from solver.problem import Problem


@dataclass(frozen=True, slots=True)
class Certificate:
    """Duals and charges, in millionths of the objective."""

    objective: Objective
    duals: Mapping[str, int]
    """Job → what it pays."""
    charges: Mapping[str, int]
    """Group → its charge, at least 0; groups without one are left out."""
    theta: int = 0
    """For `GPU_HOURS`: millionths of price per unit of rate that columns are valued with."""
    is_pairwise: bool = False
    """Whether sets are left out that hold two jobs without a common cycle."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "duals", dict(self.duals))
        object.__setattr__(self, "charges", dict(self.charges))

    @property
    def total(self) -> int:
        """All duals less all charges, in millionths."""
        return sum(self.duals.values()) - sum(self.charges.values())

    def to_json(self) -> dict[str, object]:
        """The certificate as JSON types."""
        return {
            "objective": str(self.objective),
            "duals": dict(self.duals),
            "charges": dict(self.charges),
            "theta": self.theta,
            "is_pairwise": self.is_pairwise,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Certificate:
        """Read what `to_json` wrote.

        Raises
        ------
        ValueError
            The data is malformed.
        """
        duals, charges = _numbers(data.get("duals")), _numbers(data.get("charges"))
        theta = data.get("theta")
        if not isinstance(theta, int):
            raise ValueError(f"theta of a certificate is {theta!r}")  # noqa: TRY004  (malformed)
        is_pairwise = data.get("is_pairwise") is True
        return cls(Objective(str(data.get("objective"))), duals, charges, theta, is_pairwise)


def certified_value(problem: Problem, certificate: Certificate) -> int:
    """The bound that a certificate gives, in the unit of its objective, rounded up to whole ones.

    For `GPU_HOURS` the sum over groups of price less theta times rate is at least `total`; the
    ratio then is at least theta plus `total` per rate, at the largest or least rate there can be.
    """
    total = certificate.total
    match certificate.objective:
        case Objective.ROUND | Objective.GROUPS | Objective.COST:
            return -(-total // MILLION)
        case Objective.THROUGHPUT:
            return total
        case Objective.GPU_HOURS:
            rates = (
                MILLION * job.weight if total >= 0 else rate_millionths(job, job.limit_ticks)
                for job in problem.jobs
            )
            return certificate.theta + total * MILLION // max(sum(rates), 1)


def _numbers(data: object) -> dict[str, int]:
    if not isinstance(data, Mapping) or not all(isinstance(n, int) for n in data.values()):
        raise ValueError(f"a certificate has {str(data)[:80]} for whole numbers by name")
    return dict(data)
