"""Why no plan exists, in the words of whoever wrote the problem.

Single jobs are looked at first, then the smallest set of jobs that cannot be served together,
and for that set the requirements without which it could.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from solver.bounds import cycle_limit_ticks, load_ticks, may_use
from solver.placement.search import search_placement
from solver.problem import MAX_BYTES, Group, Job, Op, Problem

MAX_NODES = 5_000
"""Placements looked at per question; a question that needs more stays unanswered."""
MAX_SHRUNK_JOBS = 50
"""Up to this many jobs the smallest set that cannot be served together is looked for."""
MAX_NAMED_JOBS = 6
"""Jobs listed by name in a message."""
_WHOLE_TICKS = 10**9


def explain(problem: Problem, *, most_passes: int = 1) -> str:
    """Say why a problem without a plan has none; every reason is a proof.

    "" if there is a placement, or if no reason was found within the effort. Where jobs may pass
    their loop several times in a cycle (`most_passes`), a reason holds for every schedule.
    """
    for job in problem.jobs:
        reason = _why_nowhere(problem, job)
        if reason:
            return reason
    if len(problem.groups) > 1 and (reason := _why_not_all(problem)):
        return reason
    is_common = most_passes == 1
    tested = problem if is_common else _as_shares(problem)
    culprits = {job.id for job in _smallest_set(tested)}
    if not culprits:
        return ""
    if len(problem.groups) == 1:
        jobs = [job for job in problem.jobs if job.id in culprits]
        return _why_not_together(problem.groups[0], jobs, is_common=is_common)
    return _why_not_placed(_only(tested, [job for job in tested.jobs if job.id in culprits]))


def describe_bytes(amount: int) -> str:
    """Bytes as people write them, exact where short: ``520 bytes``, ``1.5 GB``."""
    value = float(amount)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{value:.4g} {unit}"
        value /= 1000
    raise AssertionError("unreachable: TB ends the loop")


def describe_ticks(ticks: int) -> str:
    """Ticks as people write them: ``250 ms``, ``12.5 s``."""
    return f"{ticks} ms" if ticks < 1000 else f"{round(ticks / 1000, 2):g} s"


def _why_nowhere(problem: Problem, job: Job) -> str:
    if any(may_use(job, group) for group in problem.groups):
        return ""
    if job.pinned_group is not None:
        group = problem.group(job.pinned_group)
        if job.pool not in {None, group.pool}:
            return (
                f"job {job.id} must be on group {group.id} and in pool {job.pool}; "
                f"that group is in pool {group.pool}"
            )
        return (
            f"job {job.id} needs {describe_bytes(job.memory_bytes)} on one group; the group it is "
            f"pinned to, {group.id}, has {describe_bytes(group.memory_bytes)}"
        )
    usable = [group for group in problem.groups if job.pool in {None, group.pool}]
    largest = max(group.memory_bytes for group in usable)
    where = "the largest group" if job.pool is None else f"the largest group of pool {job.pool}"
    return (
        f"job {job.id} needs {describe_bytes(job.memory_bytes)} on one group; "
        f"{where} has {describe_bytes(largest)}"
    )


def _why_not_all(problem: Problem) -> str:
    """What all groups together cannot give all jobs."""
    have = sum(group.memory_bytes for group in problem.groups)
    need = sum(job.memory_bytes for job in problem.jobs)
    if need > have:
        return (
            f"the {len(problem.jobs)} jobs need {describe_bytes(need)} together; "
            f"the {len(problem.groups)} groups have {describe_bytes(have)}"
        )
    # Rounded down per job, so that more than there is means more than there is.
    permille = sum(1000 * job.busy_ticks // job.limit_ticks for job in problem.jobs)
    if permille > 1000 * len(problem.groups):
        return (
            f"the {len(problem.jobs)} jobs need the time of {permille / 1000:g} groups to keep "
            f"their slowdown limits; there are {len(problem.groups)}"
        )
    return ""


def _as_shares(problem: Problem) -> Problem:
    """Jobs of one op that has a common cycle wherever the shares of time that limits ask for fit.

    Rounded down, so that what has no placement here has none at all.
    """
    whole = _WHOLE_TICKS + len(problem.jobs)
    jobs = []
    for job in problem.jobs:
        busy = max(_WHOLE_TICKS * job.busy_ticks // job.limit_ticks, 1)
        ops = (Op("share", busy, whole - busy),)
        jobs.append(replace(job, ops=ops, slowdown_limit_permille=1000))
    return replace(problem, jobs=tuple(jobs))


def _only(problem: Problem, jobs: Sequence[Job]) -> Problem:
    """The problem with these jobs alone."""
    ids = {job.id for job in jobs}
    kept = (
        replace(job, forbids=tuple(other for other in job.forbids if other in ids)) for job in jobs
    )
    return Problem(problem.groups, tuple(kept))


def _is_impossible(problem: Problem) -> bool:
    search = search_placement(problem, max_nodes=MAX_NODES)
    return search.is_complete and search.placed is None


def _smallest_set(problem: Problem) -> tuple[Job, ...]:
    """Jobs that cannot be served together, though they can once any of them leaves."""
    jobs = problem.jobs
    if len(problem.groups) > 1 and len(jobs) > MAX_SHRUNK_JOBS:
        return ()
    if not _is_impossible(problem):
        return ()
    if len(jobs) > MAX_SHRUNK_JOBS:
        return jobs
    for job in jobs:
        rest = tuple(other for other in jobs if other.id != job.id)
        if rest and len(rest) < len(jobs) and _is_impossible(_only(problem, rest)):
            jobs = rest
    return jobs


def _why_not_together(group: Group, jobs: Sequence[Job], *, is_common: bool) -> str:
    """The requirement that these jobs break on this group."""
    names = name_jobs(job.id for job in jobs)
    needed = sum(job.memory_bytes for job in jobs)
    if needed > group.memory_bytes:
        return (
            f"{names} need {describe_bytes(needed)} together; group {group.id} has "
            f"{describe_bytes(group.memory_bytes)}"
        )
    if group.max_jobs is not None and len(jobs) > group.max_jobs:
        return f"{names} are {len(jobs)} jobs; group {group.id} may carry {group.max_jobs}"
    for job in jobs:
        for other in job.forbids:
            return f"jobs {job.id} and {other} must not share a group; there is only {group.id}"
    if not is_common:
        permille = sum(-(-1000 * job.busy_ticks // job.limit_ticks) for job in jobs)
        return (
            f"{names} need {permille / 10:g} % of the time of group {group.id} to keep their "
            "slowdown limits, however often each passes its loop"
        )
    limit = cycle_limit_ticks(jobs)
    strict = min(jobs, key=lambda job: job.limit_ticks)
    load = load_ticks(jobs)
    if load > limit:
        return (
            f"{names} keep group {group.id} busy for {describe_ticks(load)} per iteration of each; "
            f"job {strict.id} allows {describe_ticks(limit)} "
            f"({strict.slowdown_limit_permille / 1000:g} times its "
            f"{describe_ticks(strict.alone_ticks)} alone)"
        )
    longest = max(jobs, key=lambda job: job.alone_ticks)
    return (
        f"job {longest.id} takes {describe_ticks(longest.alone_ticks)} per iteration even alone; "
        f"job {strict.id}, which would share group {group.id} with it, allows "
        f"{describe_ticks(limit)} ({strict.slowdown_limit_permille / 1000:g} times its "
        f"{describe_ticks(strict.alone_ticks)} alone)"
    )


def _why_not_placed(problem: Problem) -> str:
    """The kinds of requirement without which these jobs could be placed."""
    names = name_jobs(job.id for job in problem.jobs)
    relaxed = {
        "memory": Problem(
            tuple(replace(group, memory_bytes=MAX_BYTES) for group in problem.groups), problem.jobs
        ),
        "slowdown limits": problem.without_limits(),
        "jobs per group": Problem(
            tuple(replace(group, max_jobs=None) for group in problem.groups), problem.jobs
        ),
        "pools, pins and forbidden pairs": Problem(
            problem.groups,
            tuple(replace(job, pool=None, pinned_group=None, forbids=()) for job in problem.jobs),
        ),
    }
    binding = [name for name, other in relaxed.items() if not _is_impossible(other)]
    if binding:
        cause = f"they could be without their requirements on {_or(binding)}"
    else:
        cause = "more than one kind of requirement forbids it"
    return f"{names} cannot be placed together on {len(problem.groups)} groups; {cause}"


def name_jobs(ids: Iterable[str]) -> str:
    """Jobs as people list them, the first few by name: ``jobs a, b and c``."""
    ordered = list(ids)
    if len(ordered) == 1:
        return f"job {ordered[0]}"
    if len(ordered) > MAX_NAMED_JOBS:
        named = ", ".join(ordered[:MAX_NAMED_JOBS])
        return f"jobs {named} and {len(ordered) - MAX_NAMED_JOBS} more"
    return f"jobs {', '.join(ordered[:-1])} and {ordered[-1]}"


def _or(kinds: Sequence[str]) -> str:
    return " or on ".join(kinds)
