"""Every published algorithm runs end to end on a real group; PPO with a critic beside the actor."""

import pytest

import plexrl
from dataflow.algorithms import PRESETS
from plexrl.core.status import JobState

pytestmark = pytest.mark.slow
TIMEOUT_S = 120.0


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"ppo", "dapo"}))
def test_an_algorithm_trains_and_commits(cluster, small_job, name):
    run = cluster.submit(small_job(f"a-{name}", iterations=2, algorithm=name, lr=1e-3))
    assert run.result(TIMEOUT_S).state is JobState.FINISHED
    rows = run.metrics()
    assert len(rows) == 2
    assert all(row["grad_norm"] > 0 for row in rows)
    assert all(0 <= row["equal_groups"] <= 1 for row in rows)


@pytest.fixture
def roomy(tmp_path):
    """A cluster whose group holds an actor and a critic, with their next versions, and more."""
    with plexrl.LocalCluster(groups=1, store=tmp_path / "store", host_budget_bytes=96 << 20) as one:
        yield one


def test_ppo_trains_actor_and_critic_and_shares_without_a_difference(roomy, small_job, tmp_path):
    def job(name):
        return small_job(name, iterations=3, algorithm="ppo", num_epochs=2)

    alone = roomy.submit(job("ppo-alone"))
    assert alone.result(TIMEOUT_S).state is JobState.FINISHED
    together = [roomy.submit(job("ppo")), roomy.submit(small_job("beside", iterations=3))]
    for run in together:
        run.result(TIMEOUT_S)
    for model in ("actor", "critic"):
        digest = together[0].export(tmp_path / f"shared-{model}", model=model)
        assert digest == alone.export(tmp_path / f"alone-{model}", model=model)
    row = alone.metrics()[-1]
    assert row["actor/grad_norm"] > 0
    assert row["critic/value_error"] > 0
    assert row["reward_mean"] >= 0
    # Samples are kept of what the actor learned from, with one advantage a row.
    assert all(isinstance(sample["advantage"], float) for sample in alone.samples(0))
    assert [path.name for path in (tmp_path / "store/samples/ppo-alone").iterdir()] == ["actor"]


def test_a_reference_is_a_frozen_model_of_the_job(cluster, small_job):
    run = cluster.submit(small_job("kl", iterations=3, kl_coef=0.1, kl_estimator="k2", lr=1e-3))
    run.result(TIMEOUT_S)
    kl = [row["kl"] for row in run.metrics()]
    assert kl[0] == 0
    assert kl[-1] > 0
    # What follows the reference is begun before it is asked for, once it was seen.
    leases = [lease for lease in cluster.trace().leases if lease.job == run.name]
    begun = [lease.ahead_s > 0 for lease in leases if lease.op == "actor.train.0"]
    assert begun == [False, True, True]


def test_dynamic_sampling_replaces_prompts_that_teach_nothing(cluster, small_job):
    run = cluster.submit(small_job("dapo", iterations=2, algorithm="dapo", num_prompts=2))
    run.result(TIMEOUT_S)
    for row in run.metrics():
        assert 1 <= row["sampling_rounds"] <= 3
        assert row["equal_groups"] == (0 if row["informative_prompts"] else 1)
