import pytest

from benchmarks.plain_loop import run_plain
from dataflow.pipelines import grpo

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("task", ["ascending", "calculator"])
def test_a_plain_loop_is_a_function_of_its_job(base_folder, task):
    job = grpo(model=base_folder, task=task, iterations=3, num_prompts=4, num_samples=2)
    seen = []
    first = run_plain(job, iterations=2, progress=lambda index, _iteration: seen.append(index))
    again = run_plain(job, iterations=2)
    assert seen == [0, 1]
    assert first.weights_sha256 == again.weights_sha256
    assert [i.metrics for i in first.iterations] == [i.metrics for i in again.iterations]
    for iteration in first.iterations:
        assert iteration.total_s > iteration.train_s > 0
        assert 0 <= iteration.metrics["reward_mean"] <= 1


def test_another_seed_trains_other_weights(base_folder):
    hashes = {
        run_plain(
            grpo(model=base_folder, task="ascending", iterations=1, num_prompts=4, seed=seed)
        ).weights_sha256
        for seed in (0, 1)
    }
    assert len(hashes) == 2
