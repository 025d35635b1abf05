"""A plan of several pools as its file holds it: who sits where, and by which rule it was scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from solver.dispatch.shortest import ShortestFirst
from solver.errors import PlanError, ProblemError
from solver.plan import parsed
from solver.seating import Seat

FORMAT = 1
"""Version of the JSON form."""
SHORTEST_FIRST = "shortest_first"
"""Name of `ShortestFirst` in files."""
_SHOWN = 60
"""Characters of what is wrong in a plan that are repeated, at most."""


@dataclass(frozen=True, slots=True)
class SeatPlan:
    """Seats, and the rule that their slowdowns were predicted with."""

    seats: tuple[Seat, ...]
    rule: ShortestFirst | None
    """None where the file names none."""

    @property
    def groups(self) -> frozenset[str]:
        """Groups in use."""
        return frozenset[str]().union(*(seat.all_groups for seat in self.seats))

    def to_json(self) -> dict[str, object]:
        """The plan as JSON types."""
        rule = {} if self.rule is None else {"rule": rule_to_json(self.rule)}
        return {"format": FORMAT, "seats": [seat.to_json() for seat in self.seats], **rule}

    @classmethod
    def from_json(cls, data: object) -> SeatPlan:
        """Read what ``plexrl plan --output`` writes (as JSON types, or as text).

        Raises
        ------
        PlanError
            The data is malformed or of another format.
        """
        data = parsed(data)
        if not isinstance(data, Mapping) or data.get("format") != FORMAT or "seats" not in data:
            raise PlanError(
                "it has no seats as plexrl plan --output writes them where ops name pools"
            )
        rows = data["seats"]
        if not isinstance(rows, list):
            raise PlanError(f"seats is {_shown(rows)}; give a list")
        return cls(tuple(_seat(index, row) for index, row in enumerate(rows)), _rule(data))


def rule_to_json(rule: ShortestFirst) -> dict[str, object]:
    """The rule as JSON types."""
    return {"name": SHORTEST_FIRST, "tolerances": dict(rule.tolerances)}


def _seat(index: int, row: object) -> Seat:
    if not isinstance(row, Mapping) or not isinstance(row.get("job"), str):
        raise PlanError(
            f"seats[{index}] is {_shown(row)}; give a mapping with job, rollout and train"
        )
    for role in ("rollout", "train"):
        groups = row.get(role)
        if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
            raise PlanError(f"seats[{index}].{role} is {_shown(groups)}; give a list of groups")
    return Seat(row["job"], tuple(row["rollout"]), tuple(row["train"]))


def _rule(data: Mapping[str, object]) -> ShortestFirst | None:
    found = data.get("rule")
    if found is None:
        return None
    if not isinstance(found, Mapping) or found.get("name") != SHORTEST_FIRST:
        raise PlanError(
            f"rule is {_shown(found)}; give a mapping with the name {SHORTEST_FIRST!r} and "
            "tolerances, or leave it out"
        )
    tolerances = found.get("tolerances")
    if not isinstance(tolerances, Mapping):
        raise PlanError(f"rule.tolerances is {_shown(tolerances)}; give a lag for each job")
    try:
        return ShortestFirst(dict(_lags(tolerances)))
    except ProblemError as error:
        raise PlanError(f"rule.tolerances: {error}") from error


def _lags(tolerances: Mapping[object, object]) -> Iterator[tuple[str, float]]:
    for job, lag in tolerances.items():
        if isinstance(lag, bool) or not isinstance(lag, int | float):
            raise PlanError(f"rule.tolerances of job {_shown(job)} is {_shown(lag)}; give a number")
        yield str(job), float(lag)


def _shown(value: object) -> str:
    return repr(value)[:_SHOWN]
