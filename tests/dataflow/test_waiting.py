import statistics

import pytest

from dataflow.waiting import LogNormalDelay


def test_delays_have_the_stated_distribution():
    delay = LogNormalDelay(0.5, 0.6, seed=1)
    draws = [delay.draw_s(iteration) for iteration in range(2000)]
    assert statistics.median(draws) == pytest.approx(0.5, rel=0.08)
    assert statistics.mean(draws) == pytest.approx(delay.mean_s, rel=0.08)
    assert min(draws) > 0


def test_delays_depend_on_seed_and_place_alone():
    delay = LogNormalDelay(0.5, 0.6, seed=1)
    assert delay.draw_s(3) == LogNormalDelay(0.5, 0.6, seed=1).draw_s(3)
    assert len({delay.draw_s(3), delay.draw_s(4), delay.draw_s(3, turn=1)}) == 3
    assert LogNormalDelay(0.5, 0.6, seed=2).draw_s(3) != delay.draw_s(3)


def test_a_delay_without_spread_is_constant():
    assert LogNormalDelay(0.5, 0.0).draw_s(7) == 0.5


def test_a_delay_says_its_distribution():
    assert str(LogNormalDelay(0.5, 0.25)) == "log-normal, median 0.5 s, sigma 0.25"
