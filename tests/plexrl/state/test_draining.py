"""Work shared between threads: all of it is done, or none is left running."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, get_ident

import pytest

from plexrl.state.draining import for_all


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.parametrize("num_items", [0, 1, 2, 50])
def test_every_item_is_worked_on_once(executor, num_items):
    assert sorted(for_all(executor, lambda i: i, [range(num_items)])) == list(range(num_items))


def test_one_item_stays_on_the_calling_thread(executor):
    assert for_all(executor, lambda _: get_ident(), [[1]]) == [get_ident()]


def test_two_threads_work_at_once(executor):
    both = Barrier(2)

    def work(_):
        both.wait(60)
        return get_ident()

    assert len(set(for_all(executor, work, [[1, 2]]))) == 2


@pytest.mark.parametrize("error", [IndexError, KeyError])
@pytest.mark.parametrize("bad", [0, 3, 9])
def test_an_error_ends_the_work(executor, error, bad):
    def work(item):
        if item == bad:
            raise error(item)
        return item

    with pytest.raises(error, match=str(bad)):
        for_all(executor, work, [range(5), range(5, 10)])


def test_the_other_thread_starts_at_the_last_lane(executor):
    both = Barrier(2)
    first = {}

    def work(item):
        if get_ident() not in first:
            first[get_ident()] = item
            both.wait(60)

    for_all(executor, work, ["ab", "cd", "ef"])
    assert set(first.values()) == {"a", "e"}


def test_the_caller_does_all_where_no_thread_is_free(executor):
    may_end = Event()
    busy = executor.submit(may_end.wait, 60)
    try:
        found = for_all(executor, lambda _: get_ident(), [range(5), range(5)])
    finally:
        may_end.set()
    assert set(found) == {get_ident()}
    assert len(found) == 10
    assert busy.result()
