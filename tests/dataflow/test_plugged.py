"""Whatever plugged-in functions raise becomes an error that crosses processes as what it is."""

import pickle
import threading

import pytest

from dataflow import advantages, environments, rewards
from dataflow.errors import DataflowError
from dataflow.plugged import told


class OddError(Exception):
    """No process but this one could hold it."""

    def __init__(self):
        super().__init__("odd")
        self.lock = threading.Lock()


def raising(error):
    def function(*_args, **_columns):
        raise error

    return function


class Judging:
    def __init__(self, judge):
        self.judge = self.step = judge


ERRORS = [OddError(), KeyboardInterrupt(), SystemExit(3), RecursionError()]
SITES = {
    "verifier": rewards.score,
    "judge": lambda f, s: rewards.score(Judging(f), s),
    "trl": lambda f, s: rewards.score(rewards.TrlReward((f,)), s),
    "environment": lambda f, s: environments.step(Judging(f), s),
    "advantage": lambda f, s: advantages.estimate(f, [1.0], s),
}


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("error", ERRORS)
def test_what_is_raised_is_told_and_not_carried_along(make_sample, site, error):
    caught = []

    def run():
        try:
            SITES[site](raising(error), [make_sample()])
        except DataflowError as told_by_us:
            caught.append(told_by_us)

    # As on a worker: in the main thread an interrupt is somebody's Ctrl-C.
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (found,) = caught
    assert (found.__cause__, found.__context__) == (None, None)
    assert str(pickle.loads(pickle.dumps(found))) == str(found)
    assert f"{type(error).__name__} (test_plugged.py, line " in str(found)


def test_ctrl_c_in_the_main_thread_is_still_one(make_sample):
    with pytest.raises(KeyboardInterrupt):
        rewards.score(raising(KeyboardInterrupt()), [make_sample()])


def test_an_error_of_the_call_itself_has_no_place():
    with pytest.raises(TypeError) as caught:
        told()
    assert told(caught.value).startswith("TypeError: ")
