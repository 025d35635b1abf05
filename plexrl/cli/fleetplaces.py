"""Where jobs of files with several pools must be, and where they are now: groups they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plexrl.errors import InputError
from plexrl.spelling import hint
from solver.seating import Seat
from solver.workloads import Places, Role, Workload


@dataclass(frozen=True, slots=True)
class Pins:
    """Reads which groups the jobs of a file are pinned to."""

    pools: Mapping[str, str]
    """Group → its pool."""
    roles: Mapping[str, Role]
    """Pool → what jobs do there; pools that none uses are missing."""

    def of_job(self, entry: Mapping[str, Any], index: int) -> Places:
        """Groups that a job, or one of its ops, must be on.

        Parameters
        ----------
        entry
            The job in the file; all its ops name their pools.
        index
            Its place in the file.

        Raises
        ------
        InputError
            A group is none of its pool, or two ops of a pool name different ones.
        """
        found: dict[Role, tuple[str, ...]] = {}
        if "group" in entry:
            path = f"jobs[{index}].group"
            pool = self._pool(path, entry["group"])
            if pool not in {op["pool"] for op in entry["ops"]}:
                raise InputError(
                    f"{path} is {entry['group']!r} of pool {pool!r}, which none of its ops uses; "
                    "name a group of a pool they use"
                )
            found[self.roles[pool]] = (entry["group"],)
        for place, op in enumerate(entry["ops"]):
            path, role = f"jobs[{index}].ops[{place}]", self.roles[op["pool"]]
            groups = self._of_op(path, op)
            if groups and set(found.setdefault(role, groups)) != set(groups):
                raise InputError(
                    f"{path} is on {', '.join(groups)}, its job is pinned to "
                    f"{', '.join(found[role])} of pool {op['pool']!r} before; its state is in one "
                    "place: name the same groups"
                )
        return Places(found.get(Role.ROLLOUT, ()), found.get(Role.TRAIN, ()))

    def _of_op(self, path: str, op: Mapping[str, Any]) -> tuple[str, ...]:
        if "also" in op and "group" not in op:
            raise InputError(
                f"{path}.also goes with group where ops name pools; give both, or how many "
                "groups it holds as groups"
            )
        named = {"group": op.get("group"), **dict(_also(op))}
        groups = tuple(group for group in named.values() if group is not None)
        for key, group in named.items():
            if group is not None and self._pool(f"{path}.{key}", group) != op["pool"]:
                raise InputError(
                    f"{path}.{key} is {group!r} of pool {self.pools[group]!r}, while its pool is "
                    f"{op['pool']!r}; name a group of that pool"
                )
        if len(set(groups)) != len(groups):
            raise InputError(f"{path} holds {', '.join(groups)}; name each group once")
        return groups

    def _pool(self, path: str, group: str) -> str:
        if group not in self.pools:
            raise InputError(f"{path} is {group!r}, which is no group; {hint(group, self.pools)}")
        return self.pools[group]


def _also(op: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return ((f"also[{at}]", group) for at, group in enumerate(op.get("also", ())))


def num_held(ops: Sequence[Mapping[str, Any]], index: int, pool: str, pins: Sequence[str]) -> int:
    """Groups that the ops of a pool hold at once: the state is there, so all hold the same.

    Parameters
    ----------
    ops
        Of the job.
    index
        Its place in the file.
    pool
        The pool.
    pins
        Groups of it that the job is pinned to.

    Raises
    ------
    InputError
        Two ops hold different numbers, or others than it is pinned to.
    """
    found = [
        (at, op["groups"] if "groups" in op else max(len(pins), 1))
        for at, op in enumerate(ops)
        if op["pool"] == pool
    ]
    for at, width in found:
        if pins and width != len(pins):
            raise InputError(
                f"jobs[{index}].ops[{at}].groups is {width}, while its job is pinned to "
                f"{', '.join(pins)}; name as many groups, with also, or leave one of both out"
            )
        if width != found[0][1]:
            raise InputError(
                f"jobs[{index}].ops[{at}].groups is {width}, that of ops[{found[0][0]}] is "
                f"{found[0][1]}; ops of one pool hold the same groups: give them one number"
            )
    return int(found[0][1]) if found else 1


def seats_now(
    current: Mapping[str, Any], jobs: Sequence[Workload], names: Mapping[Role, Sequence[str]]
) -> Iterator[Seat]:
    """Where jobs are now, as a file says: job → its group, or its groups.

    Raises
    ------
    InputError
        A job or a group is none of the file, or a job has none of a pool it uses.
    """
    known = {job.name: job for job in jobs}
    groups = {group for here in names.values() for group in here}
    for name, given in current.items():
        path = f"current[{name!r}]"
        if name not in known:
            raise InputError(f"{path} is of no job; {hint(name, known)}")
        here = (given,) if isinstance(given, str) else tuple(given)
        for group in here:
            if group not in groups:
                raise InputError(
                    f"{path} is {group!r}, which is no group of a pool that jobs use; "
                    f"{hint(group, groups)}"
                )
        found = {role: tuple(g for g in here if g in names[role]) for role in names}
        for role in names:
            if not found[role] and known[name].role_s(role):
                raise InputError(
                    f"{path} is {', '.join(here)}; name its groups of every pool that it uses: "
                    f"none is for {role}"
                )
        train = found[Role.TRAIN]
        yield Seat(name, found.get(Role.ROLLOUT, train), train)
