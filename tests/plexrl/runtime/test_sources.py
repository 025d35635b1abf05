"""A prompt source that is slow or silent holds up its own job only."""

import asyncio
import threading

import pytest

from plexrl.errors import TaskTimeoutError
from plexrl.runtime import sources
from plexrl.runtime.sources import wait_asked

SOURCE = object()


def run(ask, source=SOURCE, meanwhile=lambda: None):
    said = []

    async def both():
        asking = asyncio.ensure_future(wait_asked(source, "slow", ask, said.append))
        await asyncio.sleep(0)
        meanwhile()
        return await asking

    return asyncio.run(both()), said


def test_the_loop_goes_on_while_a_source_is_asked():
    asked = threading.Event()

    def ask():
        assert asked.wait(60.0)
        return threading.current_thread().name

    assert run(ask, meanwhile=asked.set) == ("plexrl-source-slow", [])


def test_without_a_source_there_is_no_thread():
    built, said = run(threading.current_thread, None)
    assert (built, said) == (threading.main_thread(), [])


def test_what_takes_longer_is_said(monkeypatch):
    monkeypatch.setattr(sources, "QUIET_S", 0.0)
    asked = threading.Event()
    built = []

    async def wait():
        def say(why):
            built.append(why)
            asked.set()

        return await wait_asked(SOURCE, "slow", lambda: asked.wait(60.0), say)

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
