"""Engines of a group share its device: those used longest ago make room."""

from types import SimpleNamespace

import pytest

from plexrl.core.states import StateRef
from plexrl.engines.protocol import ModelSource
from plexrl.services.models import ModelTable, OpenModel


class Process:
    """Remembers what it was asked."""

    def __init__(self, source):
        self.source, self.is_alive, self.asked = source, True, []
        self.pid = source.folder

    def layout(self):
        return SimpleNamespace(nbytes=100)

    def load(self, _arena):
        self.asked.append("load")

    def release(self):
        self.asked.append("release")

    def close(self):
        self.is_alive = False


def use(table, name):
    source = ModelSource(name)
    model = OpenModel("job", name, source, name, source, name, 0, 1, 1)
    engine = table.engine(model)
    table.load(engine, StateRef("job", name, 0), None)
    return engine


@pytest.mark.parametrize(("budget", "released"), [(None, []), (300, []), (299, ["a"]), (50, "ab")])
def test_the_engines_used_longest_ago_release_what_another_needs(budget, released):
    table = ModelTable(Process, budget)
    engines = {name: use(table, name) for name in "abc"}
    assert [name for name in "abc" if engines[name].is_released] == list(released)
    for name, engine in engines.items():
        is_released = name in released
        assert ("release" in engine.process.asked) == is_released
        assert (engine.device is None) == is_released


def test_use_counts_not_age_and_a_load_takes_memory_again():
    table = ModelTable(Process, 200)
    first, second = use(table, "a"), use(table, "b")
    use(table, "a")
    use(table, "c")
    assert (first.is_released, second.is_released) == (False, True)
    again = use(table, "b")
    assert again is second
    assert again.process.asked == ["load", "release", "load"]
    assert (again.is_released, first.is_released) == (False, True)
    assert table.num_engine_starts == 3


def test_a_dead_engine_is_not_asked_to_release():
    table = ModelTable(Process, 100)
    dead = use(table, "a")
    dead.process.is_alive = False
    use(table, "b")
    assert dead.process.asked == ["load"]


@pytest.mark.parametrize("is_dropped", [True, False])
def test_only_what_takes_the_place_of_a_dead_engine_is_a_restart(is_dropped):
    table = ModelTable(Process)
    dead, _ = use(table, "a"), use(table, "b")
    assert (table.num_engine_starts, table.num_engine_restarts) == (2, 0)
    dead.process.is_alive = False
    if is_dropped:
        table.drop_dead()
    use(table, "a")
    assert (table.num_engine_starts, table.num_engine_restarts) == (3, 1)


def test_the_engine_it_names_is_the_one_used_last():
    table = ModelTable(Process)
    assert table.engine_pid is None
    for name in ("a", "b", "a"):
        use(table, name)
        assert table.engine_pid == name


def test_an_engine_is_all_of_a_job_that_samples_on_it_beside_no_other():
    table = ModelTable(Process, None)
    source, other = ModelSource("a"), ModelSource("b")
    table.open(OpenModel("job", "actor", source, "a", source, "a", 0, 1, 1))
    table.open(OpenModel("job", "split", source, "a", other, "b", 0, 1, 1))
    engine = table.engine(table.model("job", "actor"))
    assert table.is_all_of("job", "actor", engine)
    assert not table.is_all_of("job", "split", engine)
    table.open(OpenModel("other", "actor", source, "a", source, "a", 0, 1, 1))
    assert not table.is_all_of("job", "actor", engine)
    table.forget("other")
    assert table.is_all_of("job", "actor", engine)
