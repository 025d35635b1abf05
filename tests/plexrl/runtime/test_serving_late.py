"""What a worker could not take when it was admitted is served later, under a lease again."""

import asyncio

import pytest

from plexrl.core.placement import Placement
from plexrl.planning.config import PlanningConfig
from plexrl.runtime.plugin import PlexRLScheduler
from tests.plexrl.runtime.test_rescue import Cluster
from tests.plexrl.runtime.test_where_functions_run import ANNOTATION


class ClosingGate:
    """Gate to workers that take nothing until they are open."""

    def __init__(self):
        self.is_open, self.sent = False, []

    def state(self, key):
        return "processing" if key in self.sent else "no-worker"

    def admit(self, key, _group, _address):
        if self.is_open:
            self.sent.append(key)
        return self.is_open


@pytest.mark.parametrize("lost", [0, 1])
def test_a_gang_whose_group_was_lost_before_it_was_sent_runs_when_the_group_is_back(lost):
    cluster, gate = Cluster(), ClosingGate()
    plugin = PlexRLScheduler(PlanningConfig(), 1000, "run", clock=lambda: cluster.now_s)
    plugin._gate, plugin._coordinator = gate, cluster.coordinator
    cluster.coordinator.jobs.set_placement("a", Placement.of("g", {"rollout": "h"}))

    async def live():
        cluster.coordinator.known("sync", {**ANNOTATION, "function": "sync", "op": "actor.sync.0"})
        cluster.coordinator.ready("sync", cluster.now_s)
        plugin._drain()
        group = "hg"[lost]
        cluster.group_down(group)
        cluster.group_up(group)
        gate.is_open = True
        for _ in range(2):
            plugin._serve_late()
            plugin._drain()

    asyncio.run(live())
    assert gate.sent == ["sync"]
    holders = [cluster.coordinator.arbiter.holder(group).function.id for group in ("g", "h")]
    assert holders == ["sync", "sync"]
