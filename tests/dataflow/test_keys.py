from itertools import product

from dask.utils import key_split

from dataflow.keys import draw_key, node_key, stream_seed
from dataflow.phases import Phase


def test_dask_groups_node_keys_by_phase_whatever_the_job_is_called():
    for job in ("letters", "my-letters", "abcdef-abcdef", "a.b", "x1"):
        key = node_key(Phase.ROLLOUT, job=job, iteration=3, model="actor")
        assert key_split(key) == "rollout"


def test_node_keys_differ_in_every_part():
    base = {"job": "a", "iteration": 1, "attempt": 0, "turn": 0, "model": "actor", "run": "r"}
    changes = {"job": "b", "iteration": 2, "attempt": 1, "turn": 1, "model": "critic", "run": "s"}
    keys = {node_key(Phase.TRAIN, **base), node_key(Phase.ROLLOUT, **base)}
    keys |= {node_key(Phase.TRAIN, **{**base, name: value}) for name, value in changes.items()}
    assert len(keys) == 8


def test_draw_keys_are_those_of_every_earlier_run():
    assert draw_key(0, 1, 2, 3, 4) == 66734168449311894709316571589267881975


def test_draw_keys_of_different_places_differ_and_have_128_bits():
    keys = {draw_key(*place) for place in product((0, 1, 12), repeat=5)}
    assert len(keys) == 3**5
    assert max(keys) < 2**128
    assert max(keys) > 2**120


def test_draw_keys_do_not_run_places_together():
    assert draw_key(1, 23, 0, 0, 0) != draw_key(12, 3, 0, 0, 0)


def test_streams_of_one_seed_are_independent_and_fit_64_bits():
    seeds = {stream_seed(seed, name) for seed in (0, 1) for name in ("a", "b")}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)
