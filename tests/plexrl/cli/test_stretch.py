import pytest

from plexrl.cli.stretch import cut, is_swap_in, mean_iteration_s, traffic_between, traffic_of
from plexrl.core.states import Tier, Traffic
from tests.plexrl.cli.made_up import group, iteration, lease, snapshot


def test_a_stretch_holds_only_its_jobs():
    found = cut([lease("a"), lease("b")], [iteration("a"), iteration("b")], ["b"], num_groups=1)
    assert {record.job for record in (*found.leases, *found.iterations)} == {"b"}


def test_attaching_a_model_belongs_to_no_stretch():
    attach = lease(op="actor.sync.0", iteration=-1, ready=0.0, started=0.0, ended=9.0)
    found = cut([attach, lease(ready=9.5)], [], ["a"], num_groups=1)
    assert found.started_s == 9.5
    assert len(found.leases) == 1


def test_reserved_time_counts_idle_time_and_every_group():
    found = cut(
        [lease(ready=1.0, started=1.0, ended=2.0, swap_s=0.25), lease(ready=4, started=4, ended=5)],
        [iteration(ended=6.0)],
        ["a"],
        num_groups=2,
    )
    assert found.wall_s == 5.0
    assert found.reserved_group_s == 10.0
    assert found.held_s == 2.0
    assert found.busy_s == pytest.approx(1.65)


def test_a_stretch_without_leases_is_empty():
    assert cut([], [], ["a"], num_groups=1).wall_s == 0.0


def test_mean_iteration_is_of_one_job():
    records = [iteration("a", 0, 0, 1), iteration("a", 1, 1, 4), iteration("b", 0, 0, 50)]
    assert mean_iteration_s(records, "a") == 2.0
    assert mean_iteration_s(records, "c") is None


def test_traffic_is_the_difference_of_two_snapshots():
    before = traffic_of(snapshot())
    moved = (
        Traffic(Tier.HOST, Tier.DEVICE, 8, 9_000_000, 0.3),
        Traffic(Tier.STORE, Tier.HOST, 2, 100, 0.1),
    )
    after = traffic_of(snapshot(groups=(group(traffic=moved),)))
    found = {
        (t.source, t.target): (t.num_moves, t.num_bytes) for t in traffic_between(before, after)
    }
    assert found == {
        (Tier.HOST, Tier.DEVICE): (3, 4_000_000),
        (Tier.STORE, Tier.HOST): (2, 100),
    }


def test_groups_are_added_up():
    assert traffic_of(snapshot(groups=(group(), group())))[0].num_moves == 10


def test_only_moves_towards_the_device_are_swaps():
    assert is_swap_in(Traffic(Tier.STORE, Tier.DEVICE))
    assert is_swap_in(Traffic(Tier.STORE, Tier.HOST))
    assert not is_swap_in(Traffic(Tier.HOST, Tier.STORE))
