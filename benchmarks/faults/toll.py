"""What kills cost: counts over one row of the table of failures."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil

import plexrl
from benchmarks.contract import Progress
from benchmarks.faults.jobs import ITERATIONS, NUM_GROUPS, RESULT_TIMEOUT_S, Yard
from benchmarks.faults.victims import active
from dataflow.jobs import JobSpec
from plexrl.runtime.run import Run

RECOVERY_TIMEOUT_S = 120.0
ROW_TIMEOUT_S = 200.0
"""Seconds after which nothing more is struck in a row: what is slow shall not cost the others."""
POLL_S = 0.02


@dataclass(slots=True)
class Toll:
    """Counts of one row."""

    row: str
    progress: Progress
    kills: Counter[str] = field(default_factory=Counter)
    """Moment → kills."""
    recovery_s: list[float] = field(default_factory=list)
    num_lost_or_doubled: int = 0
    num_hangs: int = 0
    num_unequal: int = 0
    num_unfinished: int = 0
    num_plugin_errors: int = 0
    num_left: int = 0
    """Processes that outlived those that started them."""
    started_s: float = field(default_factory=time.monotonic)

    def is_over(self) -> bool:
        """Whether the row has had its time."""
        return time.monotonic() - self.started_s > ROW_TIMEOUT_S

    def count_left(self, processes: Sequence[psutil.Process], timeout_s: float) -> None:
        """Wait until all these have ended; count those that have not, and end them."""
        for process in psutil.wait_procs(processes, timeout_s)[1]:
            self.num_left += 1
            self.progress(f"{self.row}: {process} outlived what started it")
            process.kill()

    def note_hang(self, cluster: plexrl.Cluster, what: str) -> None:
        """Count something that does not go on, and tell what everything waits for."""
        self.num_hangs += 1
        self.progress(f"{self.row}: hang: {what}")
        status = cluster.status()
        for job in active(status).values():
            self.progress(
                f"  {job.name}: {job.state} on {job.group}, iteration {job.iteration}, phase "
                f"{job.phase or 'none'}, waits for {job.waiting or 'nothing'}"
            )
        for group in status.groups:
            self.progress(
                f"  {group.name}: worker {group.worker or 'none'}, {group.holder or 'idle'} "
                f"{group.function} for {group.held_for_s:.1f} s, {group.num_waiting} wait"
                f"{', ' + group.draining if group.draining else ''}"
            )

    def wait_until_whole(self, cluster: plexrl.Cluster) -> None:
        """Wait until every group has a worker again."""
        deadline_s = time.monotonic() + RECOVERY_TIMEOUT_S
        while sum(bool(group.worker) for group in cluster.status().groups) < NUM_GROUPS:
            if time.monotonic() > deadline_s:
                self.note_hang(cluster, "a group without a worker")
                return
            time.sleep(POLL_S)

    def wait_until_begun(
        self, cluster: plexrl.Cluster, quantity: Callable[[Iterable[bool]], bool]
    ) -> None:
        """Wait until all or any of the jobs have committed an iteration."""
        deadline_s = time.monotonic() + RESULT_TIMEOUT_S
        while not quantity([bool(job.iteration) for job in active(cluster.status()).values()]):
            if time.monotonic() > deadline_s:
                self.note_hang(cluster, "jobs that have not begun")
                return
            time.sleep(POLL_S)

    def note_recovery(
        self,
        cluster: plexrl.Cluster,
        names: Collection[str],
        struck_s: float,
        num_iterations: int = 1,
    ) -> None:
        """Wait until every job has committed that many more iterations, or ended."""
        before = {n: job.iteration for n, job in active(cluster.status()).items() if n in names}
        if not before:
            return
        deadline_s = time.monotonic() + RECOVERY_TIMEOUT_S
        while True:
            now = active(cluster.status())
            late = [
                name
                for name, n in before.items()
                if name in now and now[name].iteration < n + num_iterations
            ]
            if not late:
                self.recovery_s.append(time.monotonic() - struck_s)
                return
            if time.monotonic() > deadline_s:
                self.note_hang(cluster, f"{', '.join(late)} did not recover")
                return
            time.sleep(POLL_S)

    def audit(
        self, yard: Yard, cluster: plexrl.Cluster, runs: Sequence[tuple[JobSpec, Run]]
    ) -> None:
        """Wait for the jobs, and compare what they did and learned with undisturbed ones."""
        for job, run in runs:
            try:
                status = run.wait(RESULT_TIMEOUT_S)
            except TimeoutError as error:
                self.note_hang(cluster, str(error))
                run.cancel()
                continue
            if status.state != "finished":
                self.num_unfinished += 1
                self.progress(f"{self.row}: {job.name} {status.state}: {status.error}")
                continue
            done = Counter(int(row["iteration"]) for row in run.metrics())
            self.check(job, done, run.export(yard.scratch(f"export-{job.name}")), yard)

    def check(self, job: JobSpec, done: Mapping[int, int], weights_sha256: str, yard: Yard) -> None:
        """Compare one finished job with its undisturbed run."""
        wrong = [index for index in range(ITERATIONS) if done.get(index) != 1]
        wrong += [index for index in done if not 0 <= index < ITERATIONS]
        if wrong:
            self.num_lost_or_doubled += len(wrong)
            self.progress(f"{self.row}: {job.name} lost or doubled {wrong}: {dict(done)}")
        if weights_sha256 != yard.expected(job):
            self.num_unequal += 1
            self.progress(f"{self.row}: {job.name} learned something else")

    def figures(self) -> dict[str, float]:
        """Totals under their common names, and what is the row's own."""
        recovery_s = self.recovery_s or [0.0]
        return {
            "kills": float(self.kills.total()),
            "faults_injected": float(self.kills.total()),
            "iterations_lost_or_doubled": float(self.num_lost_or_doubled),
            "hangs": float(self.num_hangs),
            "weights_unequal": float(self.num_unequal),
            "jobs_unfinished": float(self.num_unfinished),
            "plugin_errors": float(self.num_plugin_errors),
            "processes_left": float(self.num_left),
            f"{self.row}_recovery_median_s": statistics.median(recovery_s),
            f"{self.row}_recovery_max_s": max(recovery_s),
            **{f"{self.row}_kills_{moment}": float(n) for moment, n in sorted(self.kills.items())},
        }
