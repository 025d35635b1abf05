"""Two groups: jobs are spread, keep to their group, and leave it only when it is gone for good."""

import pytest

import plexrl
from plexrl.runtime import coordinator
from tests.integration.test_deaths import TIMEOUT_S, wait_for_iteration

pytestmark = pytest.mark.slow


@pytest.fixture
def two_groups(tmp_path, host_budget_bytes):
    with plexrl.LocalCluster(
        groups=2, store=tmp_path / "store", host_budget_bytes=host_budget_bytes
    ) as cluster:
        yield cluster


def test_jobs_spread_over_groups_and_move_only_when_theirs_is_gone(
    two_groups, small_job, gate, monkeypatch, tmp_path
):
    monkeypatch.setattr(coordinator, "GROUP_PATIENCE_S", 1.0)
    stays = two_groups.submit(small_job("stays", iterations=4))
    held = gate(7)
    moves = two_groups.submit(small_job("moves", iterations=8, reward=held))
    wait_for_iteration(moves, 2)
    home, lost = stays.status().group, moves.status().group
    assert {home, lost} == {"group-0", "group-1"}
    (worker,) = [g.worker for g in two_groups.status().groups if g.name == lost]
    two_groups.client.retire_workers([worker], close_workers=True)
    held.open()
    assert stays.result(TIMEOUT_S).group == home
    moved = moves.result(TIMEOUT_S)
    assert (moved.iteration, moved.group) == (8, home)
    groups = {lease.group for lease in two_groups.trace().leases if lease.job == "stays"}
    assert groups == {home}
    calm = two_groups.submit(small_job("calm", iterations=8))
    calm.result(TIMEOUT_S)
    assert moves.export(tmp_path / "moves") == calm.export(tmp_path / "calm")
    assert [row["iteration"] for row in moves.metrics()] == list(range(8))
    assert two_groups.status().num_errors == 0
