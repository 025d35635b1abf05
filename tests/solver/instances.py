"""Small problems, and the best cycle of one group by looking at every order."""

from __future__ import annotations

from itertools import pairwise, permutations

from hypothesis import strategies as st

from solver.problem import Group, Job, Op, Problem


def job(job_id, *ops, limit=1_000_000, memory=10, **more):
    """A job of ops given as (duration, wait, switch)."""
    built = tuple(Op(f"op{index}", *op) for index, op in enumerate(ops))
    return Job(job_id, built, memory, limit, **more)


def one_group(*jobs, memory=100, **more):
    return Problem((Group("g", memory, **more),), jobs)


def three_loops():
    """Three jobs that share one group well: rollout and train, two with waits."""
    return (
        job("math", (3000, 0, 200), (1500, 0, 200), limit=4000),
        job("tool", (3000, 4000, 200), (1500, 0, 200), limit=3000),
        job("judge", (3000, 6000, 200), (1500, 0, 200), limit=3000),
    )


def contested():
    """Jobs whose floor no timeline reaches, and whose greedy timeline is not optimal."""
    return (
        job("a", (44, 90, 0), (10, 60, 2), (31, 5, 0)),
        job("b", (20, 70, 3), (37, 20, 0), (25, 44, 1)),
        job("c", (30, 35, 0), (12, 66, 4)),
    )


@st.composite
def jobs_of_one_group(draw, max_jobs=3, max_ops=2):
    ticks = st.integers(1, 30)
    waits = st.sampled_from([0, 0, 1, 7, 20, 45])
    switches = st.sampled_from([0, 0, 1, 4])
    loops = draw(
        st.lists(
            st.lists(st.tuples(ticks, waits, switches), min_size=1, max_size=max_ops),
            min_size=1,
            max_size=max_jobs,
        )
    )
    return tuple(job(f"j{index}", *loop) for index, loop in enumerate(loops))


def best_cycle(jobs):
    """The shortest common cycle, by trying every cyclic order of the ops on the group.

    For one order the shortest cycle is found by bisection over a system of differences.
    """
    ops = [(j, index) for j in range(len(jobs)) for index in range(len(jobs[j].ops))]
    longest = sum(op.duration_ticks + op.wait_ticks + op.switch_ticks for j in jobs for op in j.ops)
    best = longest
    for tail in permutations(ops[1:]):
        order = [ops[0], *tail]
        if _keeps_loops(jobs, order):
            best = min(best, _shortest(jobs, order, best))
    return best


def _keeps_loops(jobs, order):
    for j in range(len(jobs)):
        seen = [index for owner, index in order if owner == j]
        turn = seen.index(0)
        if seen[turn:] + seen[:turn] != list(range(len(seen))):
            return False
    return True


def _shortest(jobs, order, longest):
    low, high = 1, longest
    while low < high:
        middle = (low + high) // 2
        if _is_feasible(jobs, order, middle):
            high = middle
        else:
            low = middle + 1
    return low if _is_feasible(jobs, order, low) else longest


def _is_feasible(jobs, order, cycle):
    position = {op: at for at, op in enumerate(order)}
    edges = []
    for at, (before, after) in enumerate(pairwise([*order, order[0]])):
        op = jobs[before[0]].ops[before[1]]
        switch = jobs[after[0]].ops[after[1]].switch_ticks if before[0] != after[0] else 0
        shift = cycle if at == len(order) - 1 else 0
        edges.append((position[before], position[after], op.duration_ticks + switch - shift))
    for j, owner in enumerate(jobs):
        for index, op in enumerate(owner.ops):
            before = position[j, index]
            after = position[j, (index + 1) % len(owner.ops)]
            shift = cycle if after <= before else 0
            edges.append((before, after, op.duration_ticks + op.wait_ticks - shift))
    starts = [0] * len(order)
    for _ in range(len(order) + 1):
        changed = False
        for before, after, length in edges:
            if starts[after] < starts[before] + length:
                starts[after] = starts[before] + length
                changed = True
        if not changed:
            return True
    return False
