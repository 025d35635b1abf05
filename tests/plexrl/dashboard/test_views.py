from dataclasses import replace

import pytest

from plexrl.core.states import StoreUse
from plexrl.core.status import JobState
from plexrl.dashboard.lanes import Kind
from plexrl.dashboard.source import Cockpit
from plexrl.dashboard.tally import Tally
from plexrl.dashboard.views import jobs, plan, savings, state
from plexrl.dashboard.views.window import Window, following, window_bars
from solver.trace import Outcome
from tests.plexrl.cli.made_up import iteration, lease
from tests.plexrl.dashboard.made_up import MadeUp


def read(source):
    return Cockpit(source).read()


def test_slowdown_is_the_iteration_over_itself_without_waits_and_swaps():
    reading = read(MadeUp())
    line = jobs.job_lines(reading.status, reading.tally)[0]
    assert line.slowdown == pytest.approx(1.0 / (1.0 - 0.25))
    assert not line.is_over_limit


def test_a_job_over_its_limit_is_named_in_the_headline():
    source = MadeUp()
    source.jobs = (replace(source.jobs[0], slowdown_limit=1.1), *source.jobs[1:])
    reading = read(source)
    lines = jobs.job_lines(reading.status, reading.tally)
    assert lines[0].is_over_limit
    assert "over their slowdown limit: job-0" in jobs.headline(reading.status, reading.tally)


def test_many_jobs_over_their_limits_are_counted():
    source = MadeUp(num_groups=4, num_jobs=40)
    source.jobs = tuple(replace(job, slowdown_limit=1.1) for job in source.jobs)
    reading = read(source)
    told = jobs.headline(reading.status, reading.tally)
    assert told.endswith("job-5 and 34 more")


def solve_log(*rows):
    log = plan.SolveLog()
    log.update(rows, len(rows))
    return log


def test_a_solve_says_how_far_its_prediction_was_off():
    (made,) = MadeUp().plan()["history"]
    assert [line.ratio for line in solve_log(made).lines()] == [pytest.approx(1.2)]
    for cycle in made["cycles"].values():
        cycle["actual"] = {"iterations": 0, "mean_s": None}
    assert [line.ratio for line in solve_log(made).lines()] == [None]


def test_the_job_whose_cycle_is_furthest_off_comes_first():
    (made,) = MadeUp(num_jobs=3).plan()["history"]
    for name, mean_s in (("job-0", 1.1), ("job-1", 0.4), ("job-2", 2.0)):
        made["cycles"][name] = {"predicted_s": 1.0, "actual": {"iterations": 1, "mean_s": mean_s}}
    assert [line.job for line in solve_log(made).cycles()] == ["job-1", "job-2", "job-0"]


def test_solves_are_listed_newest_first_and_each_once_however_often_they_are_read():
    source = MadeUp()
    (made,) = source.plan()["history"]
    rows = [{**made, "number": number} for number in range(1, 80)]
    source.num_solves = lambda: len(told)
    source.solves = lambda first, most: told[first:][-most:]
    cockpit = Cockpit(source)
    for length in (1, 2, 2, 5, 79):
        told = rows[:length]
        source.clock_s += 1
        numbers = [line.number for line in cockpit.solves().lines()]
        assert numbers == list(range(length, max(0, length - plan.SOLVES_SHOWN), -1))


def test_failed_jobs_come_first_and_say_why():
    source = MadeUp()
    failed = replace(source.jobs[1], state=JobState.FAILED, error="reward is NaN\ntrace")
    source.jobs = (source.jobs[0], failed)
    reading = read(source)
    first = jobs.job_lines(reading.status, reading.tally)[0]
    assert (first.name, first.error, first.left_s) == ("job-1", "reward is NaN", None)


def test_a_job_ends_in_its_iterations_left_at_its_pace():
    reading = read(MadeUp(num_iterations=4))
    assert jobs.job_lines(reading.status, reading.tally)[0].left_s == 6.0


def test_jobs_are_shown_page_by_page():
    reading = read(MadeUp(num_jobs=70))
    pages = [jobs.job_lines(reading.status, reading.tally, page) for page in range(3)]
    assert [len(page) for page in pages] == [32, 32, 6]
    assert len({line.name for page in pages for line in page}) == 70


def test_reward_curves_are_thinned_and_keep_the_newest_point():
    curve = jobs.reward_curve([iteration("a", i, reward=float(i)) for i in range(1001)])
    assert len(curve) <= jobs.CURVE_POINTS
    assert curve[-1] == 1000.0


def test_staleness_is_the_versions_between_rollout_and_train():
    tally = Tally()
    rollout = replace(lease(iteration=3), version=2)
    train = replace(lease(op="actor.train.0", iteration=3, ready=1.0, ended=2.0), version=3)
    tally.add([rollout, train])
    assert tally.jobs["a"].staleness == 1


def test_a_job_that_samples_ahead_has_its_staleness_and_as_many_iterations_as_it_trains():
    tally = Tally()
    for index in range(4):
        rollout = replace(lease(iteration=index + 1), version=index)
        train = replace(lease(op="actor.train.0", iteration=index), version=index)
        tally.add([rollout, train])
    assert tally.jobs["a"].staleness == 1
    assert tally.jobs["a"].num_iterations == 4
    assert len(tally.jobs["a"].sampled) == 2


def test_an_iteration_that_is_done_again_counts_again_and_a_rollout_that_yielded_does_not():
    tally = Tally()
    tally.add([lease(iteration=i, started=at, ended=at + 0.5) for at, i in enumerate([0, 0, 1, 0])])
    assert tally.jobs["a"].num_iterations == 3


def test_a_gang_waits_and_swaps_once_and_holds_each_of_its_groups():
    tally = Tally()
    first = lease()
    tally.add([first, replace(first, group="group-1", swap_bytes=0)])
    job = tally.jobs["a"]
    assert (job.held_s, job.waited_s, job.swap_s) == pytest.approx((1.8, 0.1, 0.1))


def test_leases_outside_iterations_count_for_no_job():
    tally = Tally()
    tally.add([replace(lease(), iteration=-1)])
    assert tally.num_leases == 1
    assert not tally.jobs


def test_saving_compares_reserved_time_with_a_group_per_job():
    reading = read(MadeUp(num_groups=1, num_jobs=2, num_iterations=5))
    lines = savings.saving_lines(reading.status, reading.tally)
    total = savings.saving_total(reading.status, lines)
    # Ten seconds reserved; alone each job takes five iterations of 0.75 s on a group of its own.
    assert total.reserved_s == 10.0
    assert total.dedicated_s == pytest.approx(7.5)
    assert total.saving == pytest.approx(1 - 10.0 / 7.5)


def test_a_job_over_several_groups_would_have_as_many_of_its_own():
    source = MadeUp(num_groups=2, num_jobs=1, num_iterations=5)
    one = savings.saving_lines(source.status(), read(source).tally)
    source.jobs = (replace(source.jobs[0], group="group-0+group-1"),)
    lines = savings.saving_lines(source.status(), read(source).tally)
    assert [line.dedicated_s for line in lines] == [2 * line.dedicated_s for line in one]
    total = savings.saving_total(source.status(), lines)
    assert total.saving == pytest.approx(1 - total.reserved_s / total.dedicated_s)


def test_time_without_jobs_is_not_reserved():
    source = MadeUp(num_jobs=2)
    first, second = source.jobs
    source.jobs = (
        replace(first, started_s=0.0, ended_s=2.0),
        replace(second, started_s=5.0, ended_s=6.5),
    )
    assert savings.active_s(source.status()) == 3.5


def test_no_saving_is_claimed_before_the_first_iteration():
    source = MadeUp(num_iterations=0)
    source.jobs = tuple(replace(job, iteration_s=None) for job in source.jobs)
    reading = read(source)
    assert savings.saving_total(reading.status, []).saving is None


def test_health_counts_what_went_wrong():
    source = MadeUp()
    source.log.append(replace(lease(), outcome=Outcome.LOST))
    trouble = StoreUse(num_damaged=1, num_failed_writes=4, error="disk full")
    source.groups = (
        replace(source.groups[0], store=trouble, num_engine_starts=5, num_engine_restarts=2),
    )
    reading = read(source)
    found = state.health(reading.status, reading.tally)
    assert (found.num_lost_leases, found.num_engine_restarts, found.num_warnings) == (1, 2, 1)
    assert (found.num_damaged, found.num_failed_writes) == (1, 4)
    assert not found.is_good
    several = MadeUp()
    # One for each architecture is as it should be.
    several.groups = (replace(several.groups[0], num_engine_starts=3),)
    assert state.health(several.status(), read(several).tally).is_good


def test_residency_names_each_state_once_with_its_tiers():
    found = state.residencies(MadeUp(num_groups=2).groups)
    assert [(r.state, r.tiers) for r in found] == [
        ("job-0/actor@3", ("device", "host")),
        ("job-1/actor@3", ("device", "host")),
    ]


def test_traffic_adds_up_over_groups():
    (line,) = state.traffic_lines(MadeUp(num_groups=3).groups)
    assert (line.num_moves, line.num_bytes) == (15, 15_000_000)
    assert line.bytes_per_s == pytest.approx(15_000_000 / 0.3)


def test_plan_tells_gap_age_and_whether_it_came_true():
    source = MadeUp()
    summary = plan.plan_summary(source.status())
    assert summary.gap == pytest.approx(0.1)
    assert summary.age_s == 8.0
    log = Cockpit(source).solves()
    assert log.cycles()[0].ratio == pytest.approx(1.2)
    assert [line.number for line in log.lines()] == [3]


def test_there_may_be_no_plan_yet():
    assert solve_log().cycles() == []
    assert solve_log().lines() == []


def test_window_holds_planned_actual_and_open_leases_that_touch_it():
    source = MadeUp()
    cockpit = Cockpit(source)
    reading = cockpit.read()
    window = Window(3.0, 10.0, 12.0)
    bars = window_bars(source.groups, source.jobs, reading.tally, cockpit.plans(), window)
    assert {bar.section for bar in bars} == {"plan", "actual", "jobs"}
    assert all(bar.end_s > 3.0 and bar.start_s < 12.0 for bar in bars)
    assert any(bar.note == "holds the group right now" for bar in bars)


def test_what_a_job_does_on_groups_out_of_view_is_in_its_lane():
    source = MadeUp(num_groups=2)
    job = replace(source.jobs[0], name="split", group="group-0+group-1")
    tally = Tally()
    tally.add([
        lease("split", ready=4.0, started=4.0, ended=5.0),
        replace(lease("split", ready=5.5, started=5.5, ended=7.0), group="group-1"),
        replace(lease("other", ready=4.0, started=4.0, ended=5.0), group="group-1"),
    ])  # fmt: skip
    bars = window_bars(source.groups[:1], [job], tally, (), Window(3.0, 10.0, 12.0))
    held = [(b.lane, b.start_s) for b in bars if b.section == "jobs" and b.kind is Kind.HELD]
    assert held == [("split", 4.0), ("split", 5.5)]
    assert {bar.lane for bar in bars if bar.section == "actual"} == {"group-0"}


def test_a_window_far_into_a_run_repeats_the_plan_there_and_nowhere_else():
    source = MadeUp()
    cockpit = Cockpit(source)
    cockpit.read()
    window = following(1_000_000.0, 10.0)
    bars = window_bars(source.groups, (), Tally(), cockpit.plans(), window)
    planned = [bar for bar in bars if bar.section == "plan"]
    assert 15 <= len(planned) <= 25
    assert min(bar.end_s for bar in planned) > window.start_s


def test_recent_leases_end_where_the_window_begins():
    tally = Tally()
    tally.add([lease(iteration=i, ready=i, started=i, ended=i + 0.5) for i in range(10)])
    assert [made.iteration for made in tally.recent("group-0", 7.2)] == [7, 8, 9]
