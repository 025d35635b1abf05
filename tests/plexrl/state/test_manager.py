"""The state manager: nothing committed is lost, nothing exceeds the budget, nothing hangs."""

from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest

from plexrl.core.residency import Residence
from plexrl.core.states import StateRef, Tier
from plexrl.errors import (
    IntegrityError,
    PressureError,
    StateError,
    StoreAwayError,
    StoreError,
    VersionFenceError,
)
from plexrl.state.checksums import digest_of
from plexrl.state.manager import StateManager
from tests.plexrl.state.stores import HeldStore


def ref_of(job, version, model="actor"):
    return StateRef(job, model, version)


@pytest.fixture
def held(store):
    return HeldStore(store)


@pytest.fixture
def open_manager(held, states):
    """Opens managers with room for a number of states; closes them."""
    opened = []

    def open_with_room(num_states, **settings):
        manager = StateManager(
            held,
            host_budget_bytes=num_states * states.layout.nbytes,
            **{"pressure_timeout_s": 60, "retry_s": 0.001, "max_retry_s": 0.002} | settings,
        )
        opened.append(manager)
        return manager

    yield open_with_room
    held.may_write.set()
    held.may_read.set()
    for manager in opened:
        manager.close()


@pytest.fixture
def make(states):
    """Makes and commits a version."""

    def commit(manager, ref, *, durable=True, **settings):
        arena = manager.allocate(ref, states.layout)
        manifest = states.fill(ref, arena.view)
        manager.commit(manifest, arena, durable=durable, **settings)
        return manifest

    return commit


def use(manager, ref):
    """Fetch and release; returns where it came from and the digest of what was there."""
    fetched = manager.fetch(ref)
    found = digest_of(fetched.arena.view)
    assert found == fetched.manifest.digest
    manager.release(ref)
    return fetched.source


def on_host(manager):
    return manager.resident()[Tier.HOST]


def test_a_commit_is_visible_on_host_at_once(open_manager, make, held):
    manager = open_manager(2)
    held.may_write.clear()
    manifest = make(manager, ref_of("a", 0))
    assert use(manager, manifest.ref) is Tier.HOST
    assert manager.latest("a", "actor") == manifest
    assert manager.manifest(manifest.ref) == manifest
    assert manager.resident()[Tier.STORE] == ()


def test_a_durable_version_reaches_the_store(open_manager, make, store):
    manager = open_manager(2)
    manifest = make(manager, ref_of("a", 0))
    manager.wait_durable(manifest.ref, 60)
    assert store.latest("a", "actor").digest == manifest.digest
    (moved,) = manager.traffic()
    assert (moved.source, moved.target, moved.num_moves) == (Tier.HOST, Tier.STORE, 1)
    assert moved.num_bytes == manifest.layout.nbytes


def test_a_version_not_durable_stays_out_of_the_store_until_flushed(open_manager, make, store):
    manager = open_manager(2)
    make(manager, ref_of("a", 0), durable=False)
    assert store.versions("a", "actor") == ()
    manager.flush(60)
    assert store.versions("a", "actor") == (0,)


def test_a_replaced_version_leaves_host_when_it_is_released(open_manager, make):
    manager = open_manager(3)
    make(manager, ref_of("a", 0), durable=False)
    manager.fetch(ref_of("a", 0))
    make(manager, ref_of("a", 1), durable=False)
    assert on_host(manager) == ("a/actor@0", "a/actor@1")
    manager.release(ref_of("a", 0))
    assert on_host(manager) == ("a/actor@1",)


def test_stale_versions_stay_reachable_as_far_as_the_job_wants(open_manager, make):
    manager = open_manager(4)
    for version in range(4):
        make(manager, ref_of("a", version), durable=False, keep_versions=2)
    assert on_host(manager) == ("a/actor@2", "a/actor@3")


def test_the_store_keeps_as_many_versions_as_it_is_told(open_manager, make, store):
    manager = open_manager(3, retain_versions=2)
    for version in range(5):
        make(manager, ref_of("a", version))
        manager.wait_durable(ref_of("a", version), 60)
    make(manager, ref_of("b", 0))
    manager.wait_durable(ref_of("b", 0), 60)
    assert store.versions("a", "actor") == (3, 4)


def test_states_beyond_the_budget_travel_through_the_store(open_manager, make):
    manager = open_manager(2)
    for job in "abc":
        make(manager, ref_of(job, 0), durable=False)
    assert manager.host_used_bytes <= manager.host_budget_bytes
    assert [use(manager, ref_of(job, 0)) for job in "abcabc"].count(Tier.STORE) >= 3
    assert {(t.source, t.target) for t in manager.traffic()} == {
        (Tier.HOST, Tier.STORE),
        (Tier.STORE, Tier.HOST),
    }


def test_the_state_used_last_by_the_plan_leaves_first(open_manager, make):
    manager = open_manager(2)
    make(manager, ref_of("a", 0))
    make(manager, ref_of("b", 0))
    manager.flush(60)
    manager.set_next_use([("b", "actor"), ("a", "actor")])
    use(manager, ref_of("a", 0))
    make(manager, ref_of("c", 0))
    assert on_host(manager) == ("b/actor@0", "c/actor@0")


def test_without_a_plan_the_least_recently_used_leaves_first(open_manager, make):
    manager = open_manager(2)
    make(manager, ref_of("a", 0))
    make(manager, ref_of("b", 0))
    manager.flush(60)
    use(manager, ref_of("a", 0))
    make(manager, ref_of("c", 0))
    assert on_host(manager) == ("a/actor@0", "c/actor@0")


def test_under_pressure_allocation_waits_for_the_dirty_state_to_be_written(
    open_manager, make, held, store
):
    manager = open_manager(1)
    held.may_write.clear()
    make(manager, ref_of("a", 0), durable=False)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(make, manager, ref_of("b", 0), durable=False)
        assert not made.done()
        held.may_write.set()
        made.result(timeout=60)
    assert store.versions("a", "actor") == (0,)
    assert on_host(manager) == ("b/actor@0",)
    assert use(manager, ref_of("a", 0)) is Tier.STORE


def test_pressure_that_does_not_end_names_who_holds_the_memory(open_manager, make, states):
    manager = open_manager(2, pressure_timeout_s=0)
    for job in "ab":
        make(manager, ref_of(job, 0))
        manager.flush(60)
        manager.fetch(ref_of(job, 0))
    with pytest.raises(PressureError, match=r"a/actor@0 .*pinned 1 times\), b/actor@0"):
        manager.allocate(ref_of("c", 0), states.layout)
    manager.release(ref_of("a", 0))
    manager.abandon(manager.allocate(ref_of("c", 0), states.layout))


def test_pressure_tells_why_writes_do_not_help(open_manager, make, states, held):
    manager = open_manager(1, pressure_timeout_s=0)
    held.num_failures_left = 1_000_000
    make(manager, ref_of("a", 0))
    held.wait_noted_failure()
    with pytest.raises(StoreError, match="last failure: cannot write: the disk is full"):
        manager.wait_durable(ref_of("a", 0), 0)
    with pytest.raises(StoreAwayError, match="the last write failed: cannot write: the disk"):
        manager.allocate(ref_of("b", 0), states.layout)
    held.num_failures_left = 0
    manager.wait_durable(ref_of("a", 0), 60)


def test_a_model_goes_on_until_so_many_versions_wait_for_the_store(
    open_manager, make, states, held
):
    manager = open_manager(4, pressure_timeout_s=0, max_unwritten=2)
    held.num_failures_left = 1_000_000
    manager.check_writable("a", "actor")
    make(manager, ref_of("a", 0))
    held.wait_noted_failure()
    manager.check_writable("a", "actor")
    make(manager, ref_of("a", 1))
    for refused in (
        lambda: manager.allocate(ref_of("a", 2), states.layout),
        lambda: manager.check_writable("a", "actor"),
    ):
        with pytest.raises(StoreAwayError, match=r"2 versions of a/actor .*: cannot write: the"):
            refused()
    manager.check_writable("b", "actor")
    held.num_failures_left = 0
    manager.wait_durable(ref_of("a", 1), 60)
    manager.check_writable("a", "actor")
    manager.abandon(manager.allocate(ref_of("a", 2), states.layout))


def test_a_budget_that_can_never_do_is_refused_at_once_with_the_one_needed(
    open_manager, make, states
):
    nbytes = states.layout.nbytes
    manager = open_manager(1)
    make(manager, ref_of("a", 0))
    manager.fetch(ref_of("a", 0))
    with pytest.raises(PressureError, match=f"at least {2 * nbytes}"):
        manager.allocate(ref_of("a", 1), states.layout)
    manager.release(ref_of("a", 0))
    with pytest.raises(PressureError, match=f"set host_budget_bytes to at least {nbytes}"):
        open_manager(0).allocate(ref_of("a", 1), states.layout)


def test_a_failed_write_is_repeated_and_seen(open_manager, make, held, store, states):
    manager = open_manager(2)
    held.may_write.clear()
    held.num_failures_left = 3
    make(manager, ref_of("a", 0))
    held.may_write.set()
    manager.wait_durable(ref_of("a", 0), 60)
    assert held.num_failures_left == 0
    assert store.versions("a", "actor") == (0,)
    told = manager.store_use()
    assert (told.error, told.num_failed_writes) == ("", 3)
    assert told.num_bytes == states.layout.nbytes


def test_what_waits_for_the_store_is_told(open_manager, make, held, states):
    manager = open_manager(3)
    held.may_write.clear()
    for job, durable in (("a", True), ("b", True), ("c", False)):
        make(manager, ref_of(job, 0), durable=durable)
    told = manager.store_use()
    assert (told.num_waiting, told.num_waiting_bytes) == (2, 2 * states.layout.nbytes)
    held.may_write.set()
    for job in "ab":
        manager.wait_durable(ref_of(job, 0), 60)
    assert (manager.store_use().num_waiting, manager.store_use().num_waiting_bytes) == (0, 0)


def test_a_failed_write_keeps_the_state_dirty_and_visible(open_manager, make, held):
    manager = open_manager(2)
    held.num_failures_left = 1_000_000
    make(manager, ref_of("a", 0))
    held.wait_noted_failure()
    assert "the disk is full" in manager.store_use().error
    assert manager.resident()[Tier.STORE] == ()
    assert use(manager, ref_of("a", 0)) is Tier.HOST
    with pytest.raises(StoreError, match="a/actor@0 could not be written"):
        manager.close()


def test_closing_writes_what_was_committed_as_durable(held, store, states, make):
    held.may_write.clear()
    manager = StateManager(held, host_budget_bytes=4 * states.layout.nbytes)
    for version in range(3):
        make(manager, ref_of("a", version), keep_versions=3)
    make(manager, ref_of("b", 0), durable=False)
    held.may_write.set()
    manager.close()
    assert store.versions("a", "actor") == (0, 1, 2)
    assert store.versions("b", "actor") == ()


def test_a_prefetched_version_is_a_host_hit(open_manager, make, held):
    manager = open_manager(2)
    for job in "abc":
        make(manager, ref_of(job, 0))
    manager.flush(60)
    assert on_host(manager) == ("b/actor@0", "c/actor@0")
    manager.set_next_use([("a", "actor"), ("b", "actor"), ("c", "actor")])
    held.may_read.clear()
    manager.prefetch(ref_of("a", 0))
    assert held.is_reading.wait(60)
    with ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(manager.fetch, ref_of("a", 0))
        held.may_read.set()
        assert fetched.result(timeout=60).source is Tier.HOST
    assert on_host(manager) == ("a/actor@0", "b/actor@0")
    manager.release(ref_of("a", 0))


def test_a_prefetch_never_drives_out_what_is_used_sooner(open_manager, make, held):
    manager = open_manager(1)
    make(manager, ref_of("a", 0))
    make(manager, ref_of("b", 0))
    manager.flush(60)
    manager.set_next_use([("b", "actor"), ("a", "actor")])
    manager.prefetch(ref_of("a", 0))
    manager.set_next_use([("b", "actor"), ("a", "actor")])
    assert on_host(manager) == ("b/actor@0",)
    manager.set_next_use([("a", "actor"), ("b", "actor")])
    assert held.is_reading.wait(60)
    assert use(manager, ref_of("a", 0)) is Tier.HOST


def test_a_read_that_breaks_in_the_background_shows_and_leaves_the_next_prefetch(
    open_manager, make, held
):
    manager = open_manager(2)
    for job in "abc":
        make(manager, ref_of(job, 0))
    manager.flush(60)
    manager.set_next_use([("a", "actor"), ("b", "actor"), ("c", "actor")])
    held.read_error = RuntimeError("can't start new thread")
    host = manager._host
    manager.prefetch(ref_of("a", 0))
    assert held.is_reading.wait(60)
    with host.condition:
        failed = host.condition.wait_for(
            lambda: host.table.row(ref_of("a", 0)).residence is Residence.STORED, 60
        )
        held.is_reading.clear()
    assert failed
    manager.prefetch(ref_of("a", 0))
    assert held.is_reading.wait(60)
    assert use(manager, ref_of("a", 0)) is Tier.HOST
    assert "reading a/actor@0 raised" in manager.store_use().error


def test_a_prefetch_of_nothing_is_a_hint_that_shows_as_error(open_manager):
    manager = open_manager(1)
    manager.prefetch(ref_of("a", 3))
    assert "a/actor@3 is not in the store" in manager.store_use().error


def test_a_damaged_version_is_not_handed_out_and_the_last_good_one_serves(
    open_manager, make, store
):
    manager = open_manager(2)
    for version in range(2):
        make(manager, ref_of("a", version))
    for job in "bc":
        make(manager, ref_of(job, 0))
    manager.flush(60)
    path = store.root / "a" / "actor" / "v00000001" / "weights" / "c.0"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(IntegrityError, match="moved aside"):
        manager.fetch(ref_of("a", 1))
    assert manager.latest("a", "actor").ref.version == 0
    assert use(manager, ref_of("a", 0)) is Tier.STORE
    make(manager, ref_of("a", 1))
    manager.wait_durable(ref_of("a", 1), 60)


def test_committed_versions_cannot_be_made_again(open_manager, make, states):
    manager = open_manager(3)
    make(manager, ref_of("a", 2))
    for version in (1, 2):
        with pytest.raises(VersionFenceError, match="go on with version 3"):
            manager.allocate(ref_of("a", version), states.layout)
    arena = manager.allocate(ref_of("a", 3), states.layout)
    with pytest.raises(VersionFenceError, match="being made already"):
        manager.allocate(ref_of("a", 3), states.layout)
    manager.abandon(arena)
    manager.abandon(manager.allocate(ref_of("a", 3), states.layout))


def test_a_new_manager_goes_on_from_the_store(open_manager, make, states):
    first = open_manager(2)
    manifest = make(first, ref_of("a", 0))
    first.close()
    second = open_manager(2)
    assert second.latest("a", "actor").digest == manifest.digest
    with pytest.raises(VersionFenceError):
        second.allocate(ref_of("a", 0), states.layout)
    assert use(second, ref_of("a", 0)) is Tier.STORE


def test_arenas_being_filled_count_and_come_back_when_abandoned(open_manager, states):
    manager = open_manager(2)
    arena = manager.allocate(ref_of("a", 0), states.layout)
    assert manager.host_used_bytes == states.layout.nbytes
    manager.abandon(arena)
    assert manager.host_used_bytes == 0
    with pytest.raises(StateError, match="not being filled"):
        manager.abandon(arena)


def test_padding_of_a_reused_arena_is_zero(open_manager, states):
    manager = open_manager(1)
    arena = manager.allocate(ref_of("a", 0), states.layout)
    arena.view[:] = b"\xff" * arena.nbytes
    manager.abandon(arena)
    again = manager.allocate(ref_of("a", 0), states.layout)
    assert again is arena
    tail = states.layout.slots[-1]
    assert bytes(again.view[tail.offset + tail.nbytes :]) == bytes(64 - tail.nbytes)
    assert again.view[tail.offset] == 255
    manager.abandon(again)


def test_only_the_arena_allocated_for_a_version_is_committed(open_manager, states):
    manager = open_manager(2)
    one = manager.allocate(ref_of("a", 0), states.layout)
    two = manager.allocate(ref_of("b", 0), states.layout)
    manifest = states.fill(ref_of("a", 0), two.view)
    with pytest.raises(StateError, match="was not allocated for a/actor@0"):
        manager.commit(manifest, two, durable=True)
    with pytest.raises(StateError, match="not committed yet"):
        manager.fetch(ref_of("a", 0))
    manager.abandon(one)
    manager.abandon(two)


def test_a_dropped_job_leaves_host_but_not_before_its_durable_version_is_written(
    open_manager, make, held, store
):
    manager = open_manager(3)
    held.may_write.clear()
    make(manager, ref_of("a", 0))
    make(manager, ref_of("b", 0), durable=False)
    manager.drop_job("b")
    assert on_host(manager) == ("a/actor@0",)
    manager.drop_job("a")
    assert on_host(manager) == ("a/actor@0",)
    held.may_write.set()
    manager.wait_durable(ref_of("a", 0), 60)
    assert on_host(manager) == ()
    assert store.versions("a", "actor") == (0,)


def test_releasing_more_often_than_fetching_is_an_error(open_manager, make):
    manager = open_manager(1)
    make(manager, ref_of("a", 0))
    with pytest.raises(StateError, match="not pinned"):
        manager.release(ref_of("a", 0))


def test_an_unknown_version_is_an_error_everywhere(open_manager):
    manager = open_manager(1)
    for work in (manager.fetch, manager.manifest, lambda ref: manager.wait_durable(ref, 1)):
        with pytest.raises(StateError, match="a/actor@7 is "):
            work(ref_of("a", 7))
    assert manager.latest("a", "actor") is None


def test_movements_the_service_makes_are_counted(open_manager):
    manager = open_manager(1)
    manager.note_move(Tier.HOST, Tier.DEVICE, 100, 0.5)
    manager.note_move(Tier.HOST, Tier.DEVICE, 100, 0.5)
    (moved,) = manager.traffic()
    assert (moved.num_moves, moved.num_bytes, moved.seconds) == (2, 200, 1.0)


def test_a_closed_manager_takes_nothing_more(open_manager, make, states):
    manager = open_manager(2)
    make(manager, ref_of("a", 0))
    arena = manager.allocate(ref_of("a", 1), states.layout)
    manager.close()
    manager.close()
    for work in (
        lambda: manager.allocate(ref_of("b", 0), states.layout),
        lambda: manager.fetch(ref_of("a", 0)),
        lambda: manager.commit(states.make()[0], arena, durable=True),
    ):
        with pytest.raises(StateError, match="manager is closed"):
            work()


@pytest.mark.slow
def test_three_jobs_train_at_once_in_four_arenas_without_deadlock(open_manager, make):
    """Each pins one version and makes the next: with four arenas, two of them must wait."""
    manager = open_manager(4, retain_versions=2)
    failures = []

    def train(job):
        try:
            make(manager, ref_of(job, 0))
            for version in range(1, 25):
                manager.prefetch(ref_of(job, version - 1))
                fetched = manager.fetch(ref_of(job, version - 1))
                assert digest_of(fetched.arena.view) == fetched.manifest.digest
                make(manager, ref_of(job, version), durable=version % 3 == 0)
                manager.release(ref_of(job, version - 1))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [Thread(target=train, args=(job,)) for job in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)
    for job in "abc":
        assert manager.latest(job, "actor").ref.version == 24
        use(manager, ref_of(job, 24))
    assert manager.host_used_bytes <= manager.host_budget_bytes
