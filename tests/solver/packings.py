"""Problems of many groups, and the fewest groups they need by looking at every partition."""

from __future__ import annotations

import random

from solver.bounds import cycle_limit_ticks
from solver.problem import Group, Problem
from tests.solver.instances import best_cycle, job


def pool(*jobs, memory=100, max_jobs=5, groups=None):
    """As many groups as jobs, all alike."""
    count = len(jobs) if groups is None else groups
    return Problem(
        tuple(Group(f"g{index}", memory, max_jobs=max_jobs) for index in range(count)), jobs
    )


def random_pool(num_jobs, seed, *, max_jobs=5, weights=(1,)):
    """Jobs of one op and a wait, so that a cycle as long as load and chain always exists."""
    rng = random.Random(seed)
    jobs = []
    for index in range(num_jobs):
        alone = rng.randrange(200, 500)
        busy = max(1, round(alone * rng.uniform(0.15, 0.6)))
        limit = rng.randrange(1050, 2000)
        jobs.append(
            job(
                f"j{index}",
                (busy, alone - busy, rng.randrange(4)),
                limit=limit,
                memory=rng.choice([16, 24, 45, 52]),
                weight=rng.choice(weights),
            )
        )
    return pool(*jobs, memory=150, max_jobs=max_jobs)


def partitions(items):
    """Every way to cut a list into sets."""
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for index, part in enumerate(smaller):
            yield [*smaller[:index], [first, *part], *smaller[index + 1 :]]


def fewest_groups(problem):
    """The least number of groups of one kind, by brute force over partitions and orders."""
    group = problem.groups[0]
    known = {}

    def is_possible(part):
        key = frozenset(member.id for member in part)
        if key not in known:
            known[key] = (
                sum(member.memory_bytes for member in part) <= group.memory_bytes
                and (group.max_jobs is None or len(part) <= group.max_jobs)
                and (len(part) == 1 or best_cycle(part) <= cycle_limit_ticks(part))
            )
        return known[key]

    return min(
        len(parts)
        for parts in partitions(list(problem.jobs))
        if all(is_possible(part) for part in parts)
    )
