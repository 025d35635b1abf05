"""Whatever happens to a cluster in whatever order, no job is lost, doubled or left behind.

Scheduler, plugin, drivers and planner are real; services are simulated and time is turned by hand,
so that minutes with deaths and returns pass in milliseconds, and alike every time.
"""

import asyncio
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from benchmarks.simulated.cluster import SimulatedCluster
from benchmarks.simulated.shapes import ShapedJob
from benchmarks.simulated.timewarp import TimeWarpLoop
from plexrl.core.status import JobState
from plexrl.planning.config import PlanningConfig
from solver.dispatch.arbiter import Fairness
from solver.workloads import Phase, Role, Workload

GROUPS = ("group-0", "group-1")
HOSTS = ("cpu-0", "cpu-1")
ITERATIONS = 3
LONGEST_S = 12.0
"""No lease of these jobs is longer, its swap included."""
MAX_DEATHS = 2
"""Of each worker: Dask gives a task up that was on three workers that died."""
PATIENCE_S = 3000.0

pytestmark = pytest.mark.slow


def shaped(index):
    scale = 1 + index % 3
    phases = (
        Phase("rollout.0", Role.ROLLOUT, 2.0 * scale, 0.2),
        Phase("wait.0", Role.NONE, 3.0, 0.2),
        Phase("rollout.1", Role.ROLLOUT, 1.0, 0.2),
        Phase("wait.1", Role.NONE, 1.0 * scale, 0.2),
        Phase("logprob", Role.TRAIN, 0.5, 0.1),
        Phase("train", Role.TRAIN, 1.0, 0.1),
    )
    workload = Workload(f"job-{index}", phases, 4.0, 1, rollout_swap_s=0.3, train_swap_s=0.4)
    return ShapedJob(workload, ITERATIONS, seed=0, compression=1.0)


JOBS = tuple(shaped(index) for index in range(5))
NAMES = tuple(job.name for job in JOBS)
PLANNING = PlanningConfig(period_s=20.0, budget_s=0.0, max_jobs=len(JOBS))


class Cluster(RuleBasedStateMachine):
    """Plays users, operators and bad luck."""

    @initialize()
    def begin(self):
        self.loop = TimeWarpLoop()
        self.store = tempfile.mkdtemp()
        self.submitted = []
        self.deaths = dict.fromkeys((*GROUPS, *HOSTS), 0)
        self.cluster = SimulatedCluster(JOBS, self.store, PLANNING, self.loop.time)
        self.run(self.cluster.start())
        self.run(self.cluster.add_group(GROUPS[0]))
        self.run(self.cluster.add_host(HOSTS[0]))

    def run(self, action):
        async def act():
            await action
            await asyncio.sleep(0.01)

        self.loop.run_until_complete(act())

    def state(self, name):
        return self.cluster.coordinator.jobs[name].state

    @precondition(lambda self: self.cluster.services and len(self.submitted) < len(JOBS))
    @rule()
    def submit(self):
        name = NAMES[len(self.submitted)]
        self.submitted.append(name)
        self.run(self.cluster.submit(name))

    @precondition(lambda self: len(self.submitted) > 2)
    @rule(data=st.data())
    def cancel(self, data):
        self.run(self.cluster.cancel(data.draw(st.sampled_from(self.submitted))))

    @rule(tenths=st.integers(1, 300))
    def pass_time(self, tenths):
        self.run(asyncio.sleep(tenths / 10))

    @rule(group=st.sampled_from(GROUPS))
    def turn_a_group(self, group):
        """Kill it if it is there, let it join if it is not."""
        if group not in self.cluster.services:
            self.run(self.cluster.add_group(group))
        elif self.deaths[group] < MAX_DEATHS:
            self.deaths[group] += 1
            self.run(self.cluster.kill_group(group))

    @rule(host=st.sampled_from(HOSTS))
    def turn_a_host(self, host):
        if host not in self.cluster.hosts:
            self.run(self.cluster.add_host(host))
        elif self.deaths[host] < MAX_DEATHS:
            self.deaths[host] += 1
            self.run(self.cluster.kill_host(host))

    @invariant()
    def the_tables_are_sound(self):
        if hasattr(self, "cluster"):
            coordinator = self.cluster.coordinator
            coordinator.arbiter.check()
            coordinator.jobs.check()
            assert set(coordinator.groups.names()) == set(self.cluster.services)
            assert self.cluster.plugin.view.num_errors() == 0

    @invariant()
    def whoever_waits_has_a_reason(self):
        if hasattr(self, "cluster"):
            for job in self.cluster.plugin.view.status().jobs:
                is_well = job.state.is_terminal or job.phase or job.waits_for
                assert is_well, job

    def teardown(self):
        if not hasattr(self, "cluster"):
            return
        try:
            self._finish_all()
        finally:
            self.run(self.cluster.close())
            self.loop.close()
            shutil.rmtree(self.store)

    def _finish_all(self):
        for group in GROUPS:
            if group not in self.cluster.services:
                self.run(self.cluster.add_group(group))
        for host in HOSTS:
            if host not in self.cluster.hosts:
                self.run(self.cluster.add_host(host))
        limit_s = self.loop.time() + PATIENCE_S
        while not all(self.state(name).is_terminal for name in self.submitted):
            assert self.loop.time() < limit_s, self.cluster.plugin.view.status().jobs
            self.run(asyncio.sleep(10.0))
            self.the_tables_are_sound()
        for name in self.submitted:
            self._check_history(name)
        self._check_waits()

    def _check_history(self, name):
        """Every iteration of a finished job was committed, and counts, once."""
        entry = self.cluster.coordinator.jobs[name]
        indices = [record.iteration for record in entry.iterations]
        assert entry.state in {JobState.FINISHED, JobState.CANCELLED}, (name, entry.error)
        if entry.state is JobState.FINISHED:
            assert indices == list(range(ITERATIONS))
            assert self.cluster.committed.newest(name) == ITERATIONS

    def _check_waits(self):
        """Nobody starves: a bounded number of others go first, and each for a bounded time."""
        bound_s = (Fairness().max_overtaken + len(JOBS)) * LONGEST_S
        for lease in self.cluster.plugin.view.leases(0):
            assert lease.started_s - lease.ready_s < bound_s, lease


Cluster.TestCase.settings = settings(
    max_examples=20,
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
)
TestCluster = Cluster.TestCase
