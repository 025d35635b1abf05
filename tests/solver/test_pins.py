"""Jobs that are pinned, and work that counts for more: planned, checked, explained by pools."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest

from solver.arrangements import Arrangement, balanced, make_cell
from solver.cellvalue import Effort, appraise
from solver.errors import PlanError, ProblemError
from solver.explain_pools import explain_pools
from solver.pins import bundles
from solver.policies import shortest_first
from solver.queueing import Turn
from solver.rightsizing import right_size
from solver.scoring import score_fleet
from solver.seating import Seat, cells_of, seats_of, verify_seats
from solver.workloads import Places, Role
from tests.solver.sharing import COLOCATED, POOL, SPLIT, loop

EFFORT = Effort(steps=3, cycles=12, margin=0.0, confirm_cycles=12, turn=Turn.SHORTEST_FIRST)
NAMES = {Role.ROLLOUT: ("r0", "r1", "r2", "r3"), Role.TRAIN: ("t0", "t1", "t2", "t3")}
WAITERS = [loop(f"j{i}", 20, 10, 70, limit=1.6) for i in range(4)]


def on(job, *train, rollout=()):
    return replace(job, pinned=Places(tuple(rollout), train))


def sized(market, jobs, **more):
    return right_size(market, jobs, dispatch=shortest_first, effort=replace(EFFORT, **more))


def seated(market, jobs, **more):
    return {seat.job: seat for seat in seats_of(sized(market, jobs, **more), NAMES)}


def test_jobs_pinned_to_the_same_shared_groups_are_one_bundle():
    wide = replace(WAITERS[0], train_width=2, pinned=Places((), ("t0", "t1")))
    jobs = [wide, on(WAITERS[1], "t1"), on(WAITERS[2], "t2"), on(WAITERS[3], rollout=["r0"])]
    found = [{job.name for job in bundle} for bundle in bundles(SPLIT, jobs)]
    assert sorted(found, key=min) == [{"j0", "j1"}, {"j2"}, {"j3"}]
    private = [on(job, rollout=["r0"]) for job in WAITERS[:2]]
    assert [len(bundle) for bundle in bundles(POOL, private)] == [1, 1]
    assert [len(bundle) for bundle in bundles(SPLIT, private)] == [2]


@pytest.mark.slow
@pytest.mark.parametrize("market", [COLOCATED, POOL, SPLIT])
def test_pinned_jobs_are_on_their_groups_and_the_others_where_that_is_cheap(market):
    jobs = [on(WAITERS[0], "t3"), on(WAITERS[1], "t3"), on(WAITERS[2], "t1"), WAITERS[3]]
    seats = seated(market, jobs)
    assert [seats[f"j{i}"].train for i in range(3)] == [("t3",), ("t3",), ("t1",)]
    assert seats["j3"].train in {("t1",), ("t3",)}
    assert verify_seats(market, jobs, seats.values(), NAMES).is_valid


def test_private_groups_may_be_pinned_too():
    jobs = [on(WAITERS[0], rollout=["r3"]), on(WAITERS[1], "t2", rollout=["r1"]), *WAITERS[2:]]
    seats = seated(POOL, jobs, steps=0)
    assert (seats["j0"].rollout, seats["j1"].rollout) == (("r3",), ("r1",))
    assert seats["j1"].train == ("t2",)
    assert len({seat.rollout for seat in seats.values()}) == 4


def test_a_seat_beside_its_pin_is_found():
    job = on(WAITERS[0], "t1")
    (told,) = verify_seats(COLOCATED, [job], [Seat("j0", ("t0",), ("t0",))], NAMES).violations[:1]
    assert "pinned to ['t1'], but has ['t0']" in told


def test_a_job_over_its_pins_has_no_copy_elsewhere():
    market = replace(SPLIT, max_seats=3)
    jobs = [on(WAITERS[0], "t1"), WAITERS[1]]
    cell = make_cell(market, jobs, num_rollout=2, num_train=2)
    assert [len(groups) for groups in cell.train_groups] == [1, 2]
    assert [len(groups) for groups in cell.rollout_groups] == [2, 2]


@pytest.mark.parametrize(
    ("market", "jobs", "words"),
    [
        (POOL, [on(j, rollout=["r0"]) for j in WAITERS[:2]], "of its own"),
        (
            replace(COLOCATED, memory_bytes=10),
            [on(replace(j, memory_bytes=6), "t1") for j in WAITERS[:2]],
            "jobs j0 and j1 are pinned to group t1 and need 12 bytes there; it has 10 bytes",
        ),
        (replace(COLOCATED, max_jobs=2), [on(j, "t1") for j in WAITERS[:3]], "may carry 2"),
        (
            replace(COLOCATED, apart=frozenset({frozenset({"j0", "j1"})})),
            [on(j, "t1") for j in WAITERS[:2]],
            "kept apart",
        ),
        (COLOCATED, [on(loop(n, 60, 30, limit=1.2), "t0") for n in "ab"], "keep it 167% busy"),
    ],
)
def test_pins_that_no_plan_can_keep_are_explained(market, jobs, words):
    assert words in explain_pools(market, jobs, NAMES)
    free = [replace(job, pinned=Places()) for job in jobs]
    assert explain_pools(market, free, NAMES) == ""


def test_pins_that_only_simulation_refuses_are_told():
    # Together they are busy 95 % of the time, and neither may wait for the other.
    strict = [on(loop(f"j{i}", 30, 15, 50, limit=1.02), "t0") for i in range(2)]
    assert explain_pools(COLOCATED, strict, NAMES) == ""
    with pytest.raises(PlanError, match="jobs j0, j1 are pinned to groups that they share"):
        sized(COLOCATED, strict)


def test_pins_need_as_many_groups_as_a_job_holds():
    with pytest.raises(ProblemError, match="pin it to as many"):
        on(WAITERS[0], "t0", "t1")
    with pytest.raises(ProblemError, match="weight=0"):
        replace(WAITERS[0], weight=0)


def test_weights_are_balanced_by_what_own_groups_cost():
    wide = replace(WAITERS[0], train_width=3, weight=7)
    one, other = balanced(COLOCATED, [wide, WAITERS[1]])
    assert one.weight == 7 * other.weight
    assert 3 * one.weight + other.weight == pytest.approx(4)
    alike = balanced(COLOCATED, [replace(job, weight=5) for job in WAITERS])
    assert [job.weight for job in alike] == [1.0] * 4


@pytest.mark.slow
def test_work_that_counts_for_more_waits_less():
    """Three jobs on two groups at most: the one that is important has a group for itself."""
    jobs = [loop(f"j{i}", 30, 20, 60, limit=1.35, cv=0.0) for i in range(3)]
    alone = []
    for place in range(3):
        given = [replace(job, weight=30.0 if i == place else 1.0) for i, job in enumerate(jobs)]
        cells = sized(COLOCATED, balanced(COLOCATED, given))
        alone += [cell.jobs[0].name for cell in cells if len(cell.jobs) == 1]
    assert alone == ["j0", "j1", "j2"]


def ratio(cells):
    """Price per unit of work; infinite where a limit is not kept."""
    values = [appraise(cell, EFFORT) for cell in cells]
    if None in values:
        return math.inf
    return sum(v.cell.price for v in values) / sum(v.work for v in values)


def brute_force(market, jobs, names):
    """The least ratio over all ways to seat the jobs by name, each on one group of a role."""
    is_colocated = market.arrangement is Arrangement.COLOCATED
    is_private = market.arrangement is Arrangement.PRIVATE_ROLLOUT
    best, known = math.inf, {}
    for trains in itertools.product(names[Role.TRAIN], repeat=len(jobs)):
        rows = (
            [trains] if is_colocated else itertools.product(names[Role.ROLLOUT], repeat=len(jobs))
        )
        for rollouts in rows:
            if is_private and len(set(rollouts)) < len(jobs):
                continue
            places = zip(jobs, rollouts, trains, strict=True)
            seats = [Seat(job.name, (r,), (t,)) for job, r, t in places]
            if verify_seats(market, jobs, seats, names).is_valid:
                cells = cells_of(market, jobs, seats)
                shape = frozenset(
                    (frozenset(j.name for j in c.jobs), c.num_rollout, c.num_train) for c in cells
                )
                known.setdefault(shape, cells)
    for cells in known.values():
        best = min(best, ratio(cells))
    return best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("market", [COLOCATED, POOL, SPLIT])
def test_brute_force_over_all_seats_finds_nothing_cheaper(market, seed):
    rng = random.Random(seed)
    names = {role: groups[:3] for role, groups in NAMES.items()}
    jobs = []
    for index in range(3 if market is not SPLIT else 2):
        lengths = rng.uniform(10, 40), rng.uniform(10, 40), rng.uniform(20, 90)
        job = loop(f"j{index}", *lengths, limit=rng.uniform(1.4, 2.2), cv=0.05)
        job = replace(job, weight=rng.choice([1, 1, 4, 20]))
        jobs.append(on(job, rng.choice(names[Role.TRAIN])) if rng.random() < 0.4 else job)
    jobs = balanced(market, jobs)
    best = brute_force(market, jobs, names)
    try:
        cells = sized(market, jobs)
    except PlanError:
        assert best == math.inf
        return
    seats = seats_of(cells, names)
    assert verify_seats(market, jobs, seats, names).is_valid
    assert best < math.inf
    assert ratio(cells) <= best * 1.005
    assert score_fleet(cells, shortest_first, [5], cycles=20).attainment > 0.6
