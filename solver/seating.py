"""Names the groups of cells, and checks who sits where from the jobs and the market alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from solver.arrangements import Arrangement, Cell, Market
from solver.errors import PlanError
from solver.verify import Verification
from solver.workloads import Role, Workload

Names = Mapping[Role, Sequence[str]]
"""Role → the groups there are for it; colocated jobs use those of `Role.TRAIN`."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one job runs."""

    job: str
    rollout: tuple[str, ...]
    """Groups any of which runs its rollouts; one where they are private."""
    train: tuple[str, ...]
    """Groups any of which runs the rest."""

    def to_json(self) -> dict[str, object]:
        """The seat as JSON types."""
        return {"job": self.job, "rollout": list(self.rollout), "train": list(self.train)}


def seats_of(cells: Iterable[Cell], names: Names) -> tuple[Seat, ...]:
    """Seats of all jobs of all cells, on groups by name.

    Raises
    ------
    PlanError
        There are fewer groups than the cells need; the message says how many.
    """
    free = {role: iter(found) for role, found in names.items()}
    taken: dict[Role, int] = dict.fromkeys(names, 0)

    def name(role: Role) -> str:
        taken[role] += 1
        return next(free[role], "")

    seats = tuple(seat for cell in cells for seat in _named(cell, name))
    for role, count in taken.items():
        if count > len(names[role]):
            raise PlanError(
                f"the jobs need {count} {role} groups to keep their limits at this price; there "
                f"are {len(names[role])}"
            )
    return seats


def _named(cell: Cell, name: Callable[[Role], str]) -> Iterator[Seat]:
    """Seats of a cell, whose groups nobody else meets."""
    known: dict[tuple[Role, str], str] = {}

    def names_of(role: Role, groups: Sequence[str]) -> tuple[str, ...]:
        for group in groups:
            if (role, group) not in known:
                known[role, group] = name(role)
        return tuple(known[role, group] for group in groups)

    arrangement = cell.market.arrangement
    for job, rollout, train in zip(cell.jobs, cell.rollout_groups, cell.train_groups, strict=True):
        trains = names_of(Role.TRAIN, train)
        match arrangement:
            case Arrangement.COLOCATED:
                rollouts = trains
            case Arrangement.SPLIT:
                rollouts = names_of(Role.ROLLOUT, rollout)
            case Arrangement.PRIVATE_ROLLOUT:
                lanes = [f"{job.name}-{at}" for at in range(job.rollout_width)]
                rollouts = names_of(Role.ROLLOUT, lanes)
        yield Seat(job.name, rollouts, trains)


def verify_seats(
    market: Market, jobs: Sequence[Workload], seats: Iterable[Seat], names: Names
) -> Verification:
    """Check that everyone is seated once, on groups there are, within their memory and places."""
    by_name = {job.name: job for job in jobs}
    here: dict[tuple[Role, str], list[Workload]] = {}
    found: list[str] = []
    seen: set[str] = set()
    for seat in seats:
        if seat.job in seen or seat.job not in by_name:
            found.append(f"job {seat.job!r} is seated twice, or is none of the file")
            continue
        seen.add(seat.job)
        found += _misplaced(market, by_name[seat.job], seat, names)
        for role, groups in ((Role.TRAIN, seat.train), (Role.ROLLOUT, seat.rollout)):
            if role is Role.TRAIN or market.arrangement is not Arrangement.COLOCATED:
                for group in groups:
                    here.setdefault((role, group), []).append(by_name[seat.job])
    found += [f"job {name!r} has no seat" for name in by_name if name not in seen]
    for (role, group), members in here.items():
        found += _crowded(market, role, group, members)
    return Verification(tuple(found))


def _misplaced(market: Market, job: Workload, seat: Seat, names: Names) -> Iterator[str]:
    is_colocated = market.arrangement is Arrangement.COLOCATED
    if is_colocated and seat.rollout != seat.train:
        yield f"job {seat.job!r} is colocated, but samples elsewhere than it trains"
    rollout_role = Role.TRAIN if is_colocated else Role.ROLLOUT
    for role, groups in ((Role.TRAIN, seat.train), (rollout_role, seat.rollout)):
        width = job.width(role)
        most = width if width > 1 else market.max_seats
        if len(set(groups)) != len(groups) or not width <= len(groups) <= most:
            wanted = f"exactly {width}" if width == most else f"{width} to {most}"
            yield (
                f"job {seat.job!r} has the {role} groups {list(groups)}; it needs {wanted} "
                "different ones"
            )
        for group in set(groups) - set(names[role]):
            yield f"job {seat.job!r} is on {group!r}, which is no group for {role}"


def _crowded(market: Market, role: Role, group: str, members: Sequence[Workload]) -> Iterator[str]:
    is_private = role is Role.ROLLOUT and market.arrangement is Arrangement.PRIVATE_ROLLOUT
    most = 1 if is_private else market.max_jobs
    if len(members) > most:
        yield f"group {group!r} carries {len(members)} jobs; it may carry {most}"
    memory = market.memory_for(role)
    needed = sum(job.bytes_for(role) for job in members)
    if memory is not None and needed > memory:
        yield f"jobs on group {group!r} need {needed} bytes; it has {memory}"
