"""Names the groups of cells, and checks who sits where from the jobs and the market alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from solver.arrangements import Arrangement, Cell, Market
from solver.errors import PlanError
from solver.objective import MILLION
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

    def groups(self, role: Role) -> tuple[str, ...]:
        """Groups it has of the pool of a role."""
        return self.rollout if role is Role.ROLLOUT else self.train

    @property
    def all_groups(self) -> frozenset[str]:
        """Groups it has, of either role."""
        return frozenset((*self.rollout, *self.train))

    def to_json(self) -> dict[str, object]:
        """The seat as JSON types."""
        return {"job": self.job, "rollout": list(self.rollout), "train": list(self.train)}


def seats_of(
    cells: Iterable[Cell], names: Names, previous: Sequence[Seat] = ()
) -> tuple[Seat, ...]:
    """Seats of all jobs of all cells, on groups by name.

    Parameters
    ----------
    cells
        Who shares how many groups.
    names
        The groups there are.
    previous
        Where jobs are now: groups are named so that moves cost least, then that most jobs stay.

    Raises
    ------
    PlanError
        There are fewer groups than the cells need; the message says how many.
    """
    cells = tuple(cells)
    drafts, jobs = _drafts(cells), {job.name: job for cell in cells for job in cell.jobs}
    trains = _named(drafts, Role.TRAIN, names[Role.TRAIN], previous, jobs)
    if all(seat.rollout == seat.train for seat in drafts):
        # Colocated jobs have groups of one role only.
        rollouts = trains
    else:
        rollouts = _named(drafts, Role.ROLLOUT, names[Role.ROLLOUT], previous, jobs)
    return tuple(
        Seat(
            seat.job,
            tuple(rollouts[group] for group in seat.rollout),
            tuple(trains[group] for group in seat.train),
        )
        for seat in drafts
    )


def cells_of(market: Market, jobs: Sequence[Workload], seats: Sequence[Seat]) -> tuple[Cell, ...]:
    """Sets of jobs that meet on groups, directly or by others: what `seats_of` was made from.

    Parameters
    ----------
    market
        Arrangement and prices.
    jobs
        The jobs that sit there; others may be among them.
    seats
        Seats that pass `verify_seats`.
    """
    by_name, seated = {job.name: job for job in jobs}, {seat.job: seat for seat in seats}
    is_private = market.arrangement is Arrangement.PRIVATE_ROLLOUT
    graph: nx.Graph[tuple[str, str]] = nx.Graph()
    for seat in seats:
        for group in (*seat.train, *(() if is_private else seat.rollout)):
            graph.add_edge(("job", seat.job), ("group", group))
    found = []
    for part in nx.connected_components(graph):
        here = sorted(name for kind, name in part if kind == "job")
        found.append(
            Cell(
                market,
                tuple(by_name[name] for name in here),
                tuple(() if is_private else seated[name].rollout for name in here),
                tuple(seated[name].train for name in here),
            )
        )
    return tuple(found)


def num_needed(cells: Iterable[Cell], role: Role) -> int:
    """Groups of a role that cells use, private ones among them."""
    return len(groups_of(_drafts(cells), role))


def _drafts(cells: Iterable[Cell]) -> list[Seat]:
    return [seat for at, cell in enumerate(cells) for seat in _drafted(at, cell)]


def _drafted(at: int, cell: Cell) -> Iterator[Seat]:
    """Seats of a cell, whose groups nobody else meets; its number tells them from others."""
    for job, rollout, train in zip(cell.jobs, cell.rollout_groups, cell.train_groups, strict=True):
        lanes: Sequence[str] = rollout
        if cell.market.arrangement is Arrangement.PRIVATE_ROLLOUT:
            lanes = [f"{job.name}/{lane}" for lane in range(job.rollout_width)]
        yield Seat(
            job.name,
            tuple(f"{at}/{group}" for group in lanes),
            tuple(f"{at}/{group}" for group in train),
        )


def groups_of(seats: Iterable[Seat], role: Role) -> dict[str, list[str]]:
    """Groups of a role that are in use, each with its jobs."""
    found: dict[str, list[str]] = {}
    for seat in seats:
        for group in seat.groups(role):
            found.setdefault(group, []).append(seat.job)
    return found


def _named(
    drafts: Sequence[Seat],
    role: Role,
    names: Sequence[str],
    previous: Sequence[Seat],
    jobs: Mapping[str, Workload],
) -> Mapping[str, str]:
    """Group of a draft → its name: that of its pins, or under which most of its jobs are."""
    wanted, before = groups_of(drafts, role), groups_of(previous, role)
    if len(wanted) > len(names):
        raise PlanError(
            f"the jobs need {len(wanted)} {role} groups to keep their limits in the best plan "
            f"that was found; there are {len(names)}"
        )
    free = set(names)
    here: dict[str, list[str]] = {}
    for name, members in before.items():
        for job in members if name in free else ():
            here.setdefault(job, []).append(name)
    # A move that costs more is avoided first; nothing outweighs a pin.
    worth = {name: 1 + round(MILLION * job.move_share) for name, job in jobs.items()}
    most_worth = 1 + sum(worth[job] for members in wanted.values() for job in members)
    graph: nx.Graph[tuple[str, str]] = nx.Graph()
    for group, members in wanted.items():
        weights: dict[str, int] = {}
        for job in members:
            for name in here.get(job, ()):
                weights[name] = weights.get(name, 0) + worth[job]
            for name in free.intersection(jobs[job].pinned.of(role)):
                weights[name] = weights.get(name, 0) + most_worth
        graph.add_weighted_edges_from(
            (("draft", group), ("name", name), weight) for name, weight in weights.items()
        )
    found = {}
    for pair in nx.max_weight_matching(graph):
        (_, group), (_, name) = sorted(pair)
        found[group] = name
        free.remove(name)
    others = (name for name in names if name in free)
    return {group: found.get(group) or next(others) for group in wanted}


def verify_seats(
    market: Market, jobs: Sequence[Workload], seats: Iterable[Seat], names: Names
) -> Verification:
    """Check that everyone is seated once, on groups there are, within their memory and places."""
    by_name = {job.name: job for job in jobs}
    there = {role: frozenset(groups) for role, groups in names.items()}
    here: dict[tuple[Role, str], list[Workload]] = {}
    found: list[str] = []
    seen: set[str] = set()
    for seat in seats:
        if seat.job in seen or seat.job not in by_name:
            found.append(f"job {seat.job!r} is seated twice, or is none of the file")
            continue
        seen.add(seat.job)
        found += _misplaced(market, by_name[seat.job], seat, there)
        for role, groups in ((Role.TRAIN, seat.train), (Role.ROLLOUT, seat.rollout)):
            if role is Role.TRAIN or market.arrangement is not Arrangement.COLOCATED:
                for group in groups:
                    here.setdefault((role, group), []).append(by_name[seat.job])
    found += [f"job {name!r} has no seat" for name in by_name if name not in seen]
    for (role, group), members in here.items():
        found += _crowded(market, role, group, members)
    return Verification(tuple(found))


def _misplaced(
    market: Market, job: Workload, seat: Seat, names: Mapping[Role, frozenset[str]]
) -> Iterator[str]:
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
        for group in sorted(set(groups) - names[role]):
            yield f"job {seat.job!r} is on {group!r}, which is no group for {role}"
        pins = job.pinned.of(role)
        if pins and set(pins) != set(groups):
            yield f"job {seat.job!r} is pinned to {list(pins)}, but has {list(groups)} for {role}"


def _crowded(market: Market, role: Role, group: str, members: Sequence[Workload]) -> Iterator[str]:
    is_private = role is Role.ROLLOUT and market.arrangement is Arrangement.PRIVATE_ROLLOUT
    most = 1 if is_private else market.max_jobs
    if len(members) > most:
        yield f"group {group!r} carries {len(members)} jobs; it may carry {most}"
    memory = market.memory_for(role)
    needed = sum(job.bytes_for(role) for job in members)
    if memory is not None and needed > memory:
        yield f"jobs on group {group!r} need {needed} bytes; it has {memory}"
    if market.separates(members):
        yield f"group {group!r} has jobs that are to be kept apart"
