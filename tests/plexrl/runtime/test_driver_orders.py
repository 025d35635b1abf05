"""Orders end what a driver does, once each, and a cancellation always ends the driver."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import pytest
from distributed.comm import CommClosedError

import plexrl
from plexrl.runtime.driver import MAX_ATTEMPTS_WITHOUT_PROGRESS, JobDriver, Position
from plexrl.runtime.messages import Drive, DriverStarted, DriverSteppedAside, Order


class Stuck(JobDriver):
    """Waits for its models for ever."""

    num_tries = 0

    async def _attach(self, spec):
        del spec
        self.num_tries += 1
        self.tries.put_nowait(self.num_tries)
        await asyncio.Event().wait()


@pytest.fixture
def driver(tmp_path):
    spec = cloudpickle.dumps(plexrl.grpo(model="m", task="ascending", iterations=1, name="a"))
    sent = []
    with ThreadPoolExecutor(1) as trackers:
        drive = Drive("a", spec, "run", False)
        driver = Stuck(drive, None, sent.append, lambda: 0.0, str(tmp_path), trackers)
        driver.sent, driver.tries = sent, asyncio.Queue()
        yield driver


def test_a_driver_that_did_its_iteration_again_can_still_be_cancelled(driver):
    async def live():
        task = asyncio.create_task(driver.run())
        assert await driver.tries.get() == 1
        driver.order(Order.REPLAY)
        assert await driver.tries.get() == 2
        driver.order(Order.REPLAY)
        assert await driver.tries.get() == 3
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(live())
    assert driver.sent == []


@pytest.mark.parametrize("num_between", [0, 1, 2])
def test_a_driver_told_twice_to_step_aside_says_once_that_it_did(driver, num_between):
    async def live():
        task = asyncio.create_task(driver.run())
        assert await driver.tries.get() == 1
        driver.order(Order.REPLAY)
        driver.order(Order.STEP_ASIDE_NOW)
        for _ in range(num_between):
            await asyncio.sleep(0)
        driver.order(Order.STEP_ASIDE_NOW)
        await task
        driver.order(Order.STEP_ASIDE_NOW)

    asyncio.run(live())
    assert driver.sent == [DriverSteppedAside("a")]
    assert driver.num_tries == 1


def test_a_cancellation_of_something_awaited_is_tried_again_and_named_when_it_lasts(driver):
    class Cut(type(driver)):
        async def _attach(self, spec):
            del spec
            self.num_tries += 1
            raise asyncio.CancelledError

    driver.__class__ = Cut
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plexrl.runtime.driver.RETRY_PAUSE_S", 0.0)
        asyncio.run(driver.run())
    (end,) = driver.sent
    assert driver.num_tries == MAX_ATTEMPTS_WITHOUT_PROGRESS + 1
    assert "cancelled" in end.error


async def wait_for_ever(*_):
    await asyncio.Event().wait()


class Failing(Stuck):
    """Opens its models at once; its first iterations fail, the next one goes on for ever."""

    failures = ()

    async def _attach(self, spec):
        del spec
        self.num_tries += 1
        self.tries.put_nowait(self.num_tries)
        return Position(0, 0, {}, {})

    async def _submit_all(self, *_):
        if self.num_tries <= len(self.failures):
            await asyncio.sleep(0)
            raise self.failures[self.num_tries - 1]
        await wait_for_ever()

    _commit_all = wait_for_ever


@pytest.mark.parametrize("failure", [CommClosedError("lost"), asyncio.CancelledError()])
@pytest.mark.parametrize("order", [Order.STEP_ASIDE_NOW, None])
def test_a_driver_whose_iterations_failed_still_ends_as_it_is_told(
    driver, failure, order, monkeypatch
):
    monkeypatch.setattr("plexrl.runtime.driver.RETRY_PAUSE_S", 0.0)
    driver.__class__ = Failing
    driver.failures = (failure, failure)

    async def live():
        task = asyncio.create_task(driver.run())
        while await driver.tries.get() < 3:
            continue
        await asyncio.sleep(0)
        if order is not None:
            driver.order(order)
            await task
            return
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(live())
    ended = [event for event in driver.sent if not isinstance(event, DriverStarted)]
    assert ended == ([] if order is None else [DriverSteppedAside("a")])
