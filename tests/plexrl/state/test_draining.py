"""Work shared between threads: all of it is done, or none is left running."""

import gc
import threading
from threading import Barrier, Event, get_ident

import pytest

from plexrl.state.draining import Call, Partner, for_all

NAME = "joins-in"


@pytest.fixture
def partner():
    other = Partner(NAME)
    yield other
    other.close()


def partners():
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.mark.parametrize("num_items", [0, 1, 2, 50])
def test_every_item_is_worked_on_once(partner, num_items):
    assert sorted(for_all(partner, lambda i: i, [range(num_items)])) == list(range(num_items))


def test_one_item_stays_on_the_calling_thread_and_wakes_no_other(partner):
    assert for_all(partner, lambda _: get_ident(), [[1]]) == [get_ident()]
    assert not partners()


def test_two_threads_work_at_once(partner):
    both = Barrier(2)

    def work(_):
        both.wait(60)
        return get_ident()

    assert len(set(for_all(partner, work, [[1, 2]]))) == 2


@pytest.mark.parametrize("error", [IndexError, KeyError])
@pytest.mark.parametrize("bad", [0, 3, 9])
def test_an_error_ends_the_work(partner, error, bad):
    def work(item):
        if item == bad:
            raise error(item)
        return item

    with pytest.raises(error, match=str(bad)):
        for_all(partner, work, [range(5), range(5, 10)])
    assert len(for_all(partner, lambda i: i, [range(5)])) == 5


@pytest.mark.parametrize("fails", ["own", "other"])
def test_an_error_is_raised_after_the_other_thread_has_ended(partner, fails):
    both, caller, ended = Barrier(2), get_ident(), []

    def work(item):
        both.wait(60)
        if (get_ident() == caller) == (fails == "own"):
            raise KeyError(item)
        ended.append(item)

    with pytest.raises(KeyError):
        for_all(partner, work, [[1], [2]])
    assert len(ended) == 1


def test_the_other_thread_starts_at_the_last_lane(partner):
    both = Barrier(2)
    first = {}

    def work(item):
        if get_ident() not in first:
            first[get_ident()] = item
            both.wait(60)

    for_all(partner, work, ["ab", "cd", "ef"])
    assert set(first.values()) == {"a", "e"}


def test_the_caller_does_all_where_no_thread_is_free(partner):
    both, may_end = Barrier(2), Event()

    def keep_busy():
        both.wait(60)
        may_end.wait(60)

    def meanwhile():
        both.wait(60)
        try:
            found = for_all(partner, lambda _: get_ident(), [range(5), range(5)])
        finally:
            may_end.set()
        assert set(found) == {get_ident()}
        assert len(found) == 10

    with partner.call() as busy:
        busy.share(meanwhile, keep_busy)


def test_a_thread_that_comes_late_finds_nothing_to_do():
    done = []
    with Call() as call:
        call.share(lambda: done.append("own"), lambda: done.append("other"))
    call.join()
    assert done == ["own"]


def test_a_call_that_comes_to_nothing_leaves_the_other_thread_to_the_next(partner):
    with pytest.raises(KeyError), partner.call():
        raise KeyError("no such version")
    test_two_threads_work_at_once(partner)


def test_the_other_thread_ends_with_its_last_user():
    other = Partner(NAME)
    for_all(other, lambda i: i, [range(2)])
    (thread,) = partners()
    del other
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
