"""A long rollout gives its group up in the middle, and the job learns what it learns alone."""

import itertools

import pytest

from solver.trace import Outcome
from tests.integration.rewards import DIGITS

pytestmark = pytest.mark.slow
TIMEOUT_S = 180.0
LONG = {"num_prompts": 8, "num_samples": 8, "max_new_tokens": 160, "iterations": 3}
SHORT = {"num_prompts": 4, "num_samples": 4, "iterations": 30}


def finish(cluster, job, folder):
    run = cluster.submit(job)
    run.result(TIMEOUT_S)
    return run.export(folder)


def test_a_rollout_yields_to_a_shorter_job_and_changes_no_bit(cluster, small_job, tmp_path):
    alone = finish(cluster, small_job("yields-alone", reward=DIGITS, **LONG), tmp_path / "alone")
    runs = [
        cluster.submit(small_job(name, reward=DIGITS, **size))
        for name, size in (("yields", LONG), ("yielded-to", SHORT))
    ]
    for run in runs:
        run.result(TIMEOUT_S)
    assert runs[0].export(tmp_path / "shared") == alone

    leases = sorted(cluster.trace().leases, key=lambda lease: lease.started_s)
    for before, after in itertools.pairwise(leases):
        assert after.started_s >= before.ended_s
    parts = [lease for lease in leases if lease.job == "yields" and "rollout" in lease.op]
    yielded = [lease for lease in parts if lease.outcome is Outcome.YIELDED]
    assert yielded
    for lease in yielded:
        rest = [part for part in parts if part.id == lease.id and part.started_s > lease.ended_s]
        between = [
            other
            for other in leases
            if other.job == "yielded-to" and lease.ended_s <= other.started_s < rest[0].started_s
        ]
        assert between
    done = [lease for lease in parts if lease.outcome is Outcome.DONE]
    assert sorted(lease.iteration for lease in done) == list(range(LONG["iterations"]))
