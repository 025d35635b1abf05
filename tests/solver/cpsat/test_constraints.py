"""Each rule of the cyclic timeline alone: one timeline it lets through, one it does not."""

from dataclasses import replace

from ortools.sat.python import cp_model

from solver.cpsat import constraints
from solver.cpsat.variables import add_variables
from tests.solver.instances import job

CYCLE = 100


def _status(rule, jobs, fix, longest=CYCLE):
    """Whether the rule, with positions and what `fix` adds, can be kept."""
    model = cp_model.CpModel()
    variables = add_variables(model, jobs, CYCLE, longest)
    constraints.add_positions(model, variables)
    if rule is not constraints.add_positions:
        rule(model, variables)
    fix(model, variables.ops)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver.solve(model) in {cp_model.OPTIMAL, cp_model.FEASIBLE}


def _starts(*starts):
    """Fix the starts of the ops, job after job."""

    def fix(model, loops):
        ops = [here for loop in loops for here in loop]
        for here, start in zip(ops, starts, strict=True):
            model.add(here.start == start)

    return fix


def test_positions_put_every_occupation_into_the_cycle():
    jobs = (job("a", (10, 0, 0), (10, 0, 0)),)
    assert _status(constraints.add_positions, jobs, _starts(99, 150))
    assert not _status(constraints.add_positions, jobs, _starts(100, 150))


def test_the_anchor_fixes_the_longest_loop():
    jobs = (job("a", (10, 0, 0)), job("b", (10, 0, 0), (10, 0, 0)))
    assert _status(constraints.add_anchor, jobs, _starts(50, 0, 20))
    assert not _status(constraints.add_anchor, jobs, _starts(0, 50, 70))


def test_precedence_waits_and_closes_the_loop():
    jobs = (job("a", (10, 20, 0), (10, 40, 0)),)
    assert _status(constraints.add_precedence, jobs, _starts(5, 35))
    assert not _status(constraints.add_precedence, jobs, _starts(5, 34))
    assert _status(constraints.add_precedence, jobs, _starts(5, 55))
    assert not _status(constraints.add_precedence, jobs, _starts(5, 56))


def test_a_switch_is_paid_or_the_group_is_kept():
    jobs = (job("a", (10, 0, 7), (10, 0, 7)),)

    def fix(lead, kept):
        def fixed(model, loops):
            _starts(20, 60)(model, loops)
            model.add(loops[0][1].lead == lead)
            model.add(loops[0][1].is_kept == kept)

        return fixed

    assert _status(constraints.add_switches, jobs, fix(7, 0))
    assert not _status(constraints.add_switches, jobs, fix(6, 0))
    assert _status(constraints.add_switches, jobs, fix(30, 1))
    assert not _status(constraints.add_switches, jobs, fix(7, 1))


def test_a_group_kept_round_the_cycle_is_counted_from_the_last_op():
    jobs = (job("a", (10, 0, 7), (10, 0, 7)),)

    def fix(lead):
        def fixed(model, loops):
            _starts(50, 90)(model, loops)
            model.add(loops[0][0].lead == lead)
            model.add(loops[0][0].is_kept == 1)

        return fixed

    assert _status(constraints.add_switches, jobs, fix(50))
    assert not _status(constraints.add_switches, jobs, fix(49))


def test_jobs_that_share_cannot_all_be_kept():
    jobs = (job("a", (10, 0, 7)), job("b", (10, 0, 0)))

    def keep(model, loops):
        model.add(loops[0][0].is_kept == 1)

    assert _status(constraints.add_one_switch_per_job, jobs[:1], keep)
    assert not _status(constraints.add_one_switch_per_job, jobs, keep)


def test_the_group_serves_one_op_at_a_time_round_the_wrap():
    jobs = (job("a", (10, 0, 0)), job("b", (20, 0, 0)))
    assert _status(constraints.add_exclusivity, jobs, _starts(10, 90))
    assert not _status(constraints.add_exclusivity, jobs, _starts(9, 90))
    assert not _status(constraints.add_exclusivity, jobs, _starts(95, 90))


def test_the_load_fits_into_the_cycle():
    assert _status(
        constraints.add_load, (job("a", (60, 0, 0)), job("b", (40, 0, 0))), _starts(0, 60)
    )
    assert not _status(
        constraints.add_load, (job("a", (60, 0, 0)), job("b", (41, 0, 0))), _starts(0, 60)
    )


def test_no_cycle_exceeds_a_slowdown_limit():
    free = _starts(0)
    assert _status(constraints.add_slowdown_limits, (job("a", (50, 0, 0), limit=2000),), free)
    assert not _status(constraints.add_slowdown_limits, (job("a", (50, 0, 0), limit=1999),), free)


def _over_two_groups(*jobs):
    """Jobs of two ops, the first of which runs on another group than the second."""
    return tuple(
        replace(
            entry,
            ops=(replace(entry.ops[0], group="h"), *entry.ops[1:]),
            pinned_group="g",
        )
        for entry in jobs
    )


def test_groups_with_one_cycle_serve_one_op_each_at_a_time():
    jobs = _over_two_groups(job("a", (30, 0, 0), (30, 0, 0)), job("b", (30, 0, 0), (30, 0, 0)))
    assert _status(constraints.add_exclusivity, jobs, _starts(0, 40, 30, 70))
    assert not _status(constraints.add_exclusivity, jobs, _starts(0, 40, 29, 70))
    assert _status(constraints.add_load, jobs, _starts(0, 40, 30, 70))


def test_the_load_of_each_group_fits_into_the_cycle():
    heavy = (job("a", (30, 0, 0), (60, 0, 0)), job("b", (30, 0, 0), (41, 0, 0)))
    assert not _status(constraints.add_load, _over_two_groups(*heavy), _starts(0, 30, 30, 0))


def test_a_group_is_kept_since_the_jobs_previous_op_there():
    jobs = _over_two_groups(job("a", (10, 0, 7), (10, 0, 7)))

    def fix(lead):
        def fixed(model, loops):
            model.add(loops[0][0].start == 95)
            model.add(loops[0][0].lead == lead)
            model.add(loops[0][0].is_kept == 1)

        return fixed

    # From the end of its own last lease, a cycle before.
    assert _status(constraints.add_switches, jobs, fix(90))
    assert not _status(constraints.add_switches, jobs, fix(7))


def test_ops_that_run_ahead_are_tied_to_an_earlier_pass():
    (entry,) = _over_two_groups(job("a", (60, 20, 0), (90, 0, 0)))
    stale = (replace(entry, ahead_ops=1, staleness=1),)
    assert not _status(constraints.add_precedence, (entry,), _starts(0, 80))
    assert _status(constraints.add_precedence, stale, _starts(0, 110))
    assert not _status(constraints.add_precedence, stale, _starts(0, 111))
    long = (replace(stale[0], ops=(stale[0].ops[0], replace(stale[0].ops[1], duration_ticks=101))),)
    assert not _status(constraints.add_precedence, long, _starts(0, 90))
