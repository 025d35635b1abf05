"""A made-up source for pages: as many groups and jobs as a test asks for."""

from __future__ import annotations

from dataclasses import replace

from plexrl.core.states import Tier, Traffic
from plexrl.core.status import ClusterStatus, PlanStatus
from tests.plexrl.cli.made_up import group, iteration, job, lease


class MadeUp:
    """A cluster whose clock the test moves."""

    def __init__(self, num_groups=1, num_jobs=2, num_iterations=5):
        self.clock_s = 10.0
        self.num_reads = 0
        self.groups = tuple(
            replace(
                group(busy_s=4.0),
                name=f"group-{g}",
                holder=f"job-{g}" if g < num_jobs else "",
                resident={Tier.HOST: (f"job-{g}/actor@3",), Tier.DEVICE: (f"job-{g}/actor@3",)},
                traffic=(Traffic(Tier.HOST, Tier.DEVICE, 5, 5_000_000, 0.1),),
            )
            for g in range(num_groups)
        )
        self.records = {
            f"job-{j}": [
                iteration(f"job-{j}", i, float(i), i + 1.0, reward=i / max(1, num_iterations))
                for i in range(num_iterations)
            ]
            for j in range(num_jobs)
        }
        self.jobs = tuple(
            replace(
                job(f"job-{j}", iteration=num_iterations, waits_for="" if j < num_groups else "it"),
                group=f"group-{j % num_groups}",
                iteration_s=1.0,
            )
            for j in range(num_jobs)
        )
        self.log = [
            made
            for i in range(num_iterations)
            for j in range(num_jobs)
            for made in _iteration_leases(f"job-{j}", i, f"group-{j % num_groups}")
        ]
        self.plan_status = PlanStatus(
            "optimal", 1.0, 0.9, "universal", True, 3, "job arrived", 2.0, {}
        )

    def now_s(self):
        return self.clock_s

    def status(self):
        self.num_reads += 1
        return ClusterStatus(self.clock_s, self.jobs, self.groups, self.plan_status)

    def num_leases(self):
        return len(self.log)

    def leases(self, first):
        return self.log[first:]

    def iterations(self, name):
        return self.records[name]

    def num_solves(self):
        return len(self.plan()["history"])

    def solves(self, first, most):
        return self.plan()["history"][first:][-most:]

    def plan(self, newest=None):
        timings = [
            {"job": made.name, "op": "actor.rollout.0", "start_ticks": 100 * place, "wraps": 0}
            for place, made in enumerate(self.jobs[:2])
        ]
        problem = [
            {"id": made.name, "ops": [{"name": "actor.rollout.0", "duration_ticks": 90}]}
            for made in self.jobs
        ]
        cycles = {
            made.name: {"predicted_s": 1.0, "actual": {"iterations": 2, "mean_s": 1.2}}
            for made in self.jobs
        }
        solve = {
            "number": 3,
            "reason": "job arrived",
            "note": "",
            "status": "optimal",
            "objective_s": 1.0,
            "bound_s": 0.9,
            "seconds": 0.4,
            "verified": True,
            "adopted_s": 2.0,
            "cycles": cycles,
        }
        timeline = {"group": "group-0", "cycle_ticks": 1000, "timings": timings}
        in_force = {**solve, "plan": {"timelines": [timeline]}, "problem": {"jobs": problem}}
        return {"num_solves": 3, "in_force": in_force, "history": [solve][:newest]}


def _iteration_leases(name, index, group_name):
    """A rollout that waited 0.2 s, and a train function one version later."""
    start = float(index)
    rollout = lease(name, "actor.rollout.0", index, start, start + 0.2, start + 0.6, swap_s=0.05)
    train = lease(name, "actor.train.0", index, start + 0.7, start + 0.7, start + 1.0, swap_s=0.0)
    return [replace(made, group=group_name) for made in (rollout, train)]
