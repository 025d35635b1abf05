"""Arithmetic of the benchmark `learning`."""

import pytest

from benchmarks.matmul_limit import matmul_limit_samples_per_s
from benchmarks.scenarios.learning import _curves, _over
from plexrl.engines.tiny_model import random_base


def test_a_curve_has_the_band_of_its_seeds():
    found = _curves("grpo", [[0.0] * 10 + [0.4] * 5, [0.2] * 10 + [0.8] * 5])
    assert found["reward_grpo_until_10"] == pytest.approx(0.1)
    assert found["reward_grpo_until_10_min"] == 0.0
    assert found["reward_grpo_until_15_max"] == pytest.approx(0.8)
    assert len(found) == 6


def test_a_ratio_is_of_what_was_measured_in_the_same_round():
    # The machine got ten times slower for the second and third round.
    found = _over("ours", [10.0, 1.0, 0.8, 9.0], [5.0, 0.5, 0.8, 3.0])
    assert found == {"ours": 2.0, "ours_lower_quarter": 1.75, "ours_upper_quarter": 2.25}


@pytest.mark.slow
def test_the_limit_of_the_machine_is_above_what_it_does(tmp_path):
    # A thousand samples a second would take 0.1 TFLOP/s.
    assert 10 < matmul_limit_samples_per_s(random_base(tmp_path / "base", seed=0)) < 1e6
