from plexrl.dashboard.source import REFRESH_S, Cockpit
from tests.plexrl.cli.made_up import lease
from tests.plexrl.dashboard.made_up import MadeUp


def test_however_many_look_the_tables_are_read_once_per_refresh():
    source = MadeUp()
    cockpit = Cockpit(source)
    readings = {cockpit.read().number for _ in range(20)}
    assert (source.num_reads, readings) == (1, {1})
    source.clock_s += REFRESH_S
    assert cockpit.read().number == 2


def test_a_large_cluster_is_read_half_as_often():
    source = MadeUp(num_groups=64, num_jobs=64, num_iterations=1)
    cockpit = Cockpit(source)
    numbers = []
    for _ in range(4):
        numbers.append(cockpit.read().number)
        source.clock_s += REFRESH_S
    assert numbers == [1, 1, 2, 2]


def test_each_lease_is_counted_once():
    source = MadeUp(num_iterations=3, num_jobs=1)
    cockpit = Cockpit(source)
    assert cockpit.read().tally.num_leases == 6
    source.clock_s += 1
    source.log.append(lease("job-0", iteration=3))
    assert cockpit.read().tally.num_leases == 7


def test_leases_that_were_dropped_from_memory_are_not_counted_twice():
    source = MadeUp(num_iterations=3, num_jobs=1)
    kept = source.log[4:]
    source.leases = lambda first: kept[max(0, first - 4) :]
    cockpit = Cockpit(source)
    assert cockpit.read().tally.num_leases == 2
    source.clock_s += 1
    assert cockpit.read().tally.num_leases == 2


def test_a_plan_is_noted_once_per_adoption():
    source = MadeUp()
    cockpit = Cockpit(source)
    for _ in range(3):
        cockpit.read()
        source.clock_s += 1
    assert [plan.adopted_s for plan in cockpit.plans()] == [2.0]


def test_a_long_backlog_is_counted_over_several_readings(monkeypatch):
    monkeypatch.setattr("plexrl.dashboard.source.MAX_BATCH", 4)
    source = MadeUp(num_iterations=3, num_jobs=1)
    cockpit = Cockpit(source)
    seen = []
    for _ in range(3):
        seen.append(cockpit.read().tally.num_leases)
        source.clock_s += 1
    assert seen == [4, 6, 6]
