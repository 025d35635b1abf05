"""A prompt source that is slow or silent holds up its own job only."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from plexrl.errors import TaskTimeoutError
from plexrl.runtime import sources
from plexrl.runtime.sources import wait_built

JOB = SimpleNamespace(name="slow", prompts=object())


def run(build, job=JOB, meanwhile=lambda: None):
    said = []

    async def both():
        building = asyncio.ensure_future(wait_built(job, build, said.append))
        await asyncio.sleep(0)
        meanwhile()
        return await building

    return asyncio.run(both()), said


def test_the_loop_goes_on_while_a_source_is_asked():
    asked = threading.Event()

    def build():
        assert asked.wait(60.0)
        return threading.current_thread().name

    assert run(build, meanwhile=asked.set) == ("plexrl-source-slow", [])


def test_without_a_source_there_is_no_thread():
    built, said = run(threading.current_thread, SimpleNamespace(name="none", prompts=None))
    assert (built, said) == (threading.main_thread(), [])


def test_what_takes_longer_is_said(monkeypatch):
    monkeypatch.setattr(sources, "QUIET_S", 0.0)
    asked = threading.Event()
    built = []

    async def wait():
        def say(why):
            built.append(why)
            asked.set()

        return await wait_built(JOB, lambda: asked.wait(60.0), say)

    assert asyncio.run(wait())
    assert built == ["its prompt source object", ""]


def test_a_source_that_never_answers_fails_its_job(monkeypatch):
    monkeypatch.setattr(sources, "QUIET_S", 0.0)
    monkeypatch.setattr(sources, "MAX_WAIT_S", 0.0)
    over = threading.Event()
    with pytest.raises(TaskTimeoutError, match="'slow': its prompt source object gave no prompts"):
        run(lambda: over.wait(60.0))
    over.set()


def test_what_a_source_raises_is_raised_where_it_is_awaited():
    with pytest.raises(OSError, match="gone"):
        run(lambda: (_ for _ in ()).throw(OSError("gone")))
