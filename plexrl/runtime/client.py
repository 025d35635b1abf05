"""What users hold of a cluster: jobs go in, and its state comes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import cloudpickle
from distributed import Client
from distributed.protocol.pickle import loads

from dataflow.jobs import JobSpec
from dataflow.starts import StartVersion
from plexrl.core.status import ClusterStatus
from plexrl.errors import InputError
from plexrl.ids import new_run_id
from plexrl.runtime import messages, notebook
from plexrl.runtime.asking import ask_workers
from plexrl.runtime.configuration import Settings, read
from plexrl.runtime.facts import job_facts
from plexrl.runtime.messages import CommittedModel, Submission, Trace, pack, unpack
from plexrl.runtime.plugin import PLUGIN_NAME, PlexRLScheduler
from plexrl.runtime.registry import states_of
from plexrl.runtime.rollout_engines import check_rollout_engines
from plexrl.runtime.run import Run
from plexrl.runtime.starts import check_start_in_cluster
from plexrl.runtime.tracking import check_tracking
from plexrl.runtime.worker_plugin import PlexRLWorker
from plexrl.state.opening import check_usable
from plexrl.state.places import absolute


class Cluster:
    """A Dask cluster on which PlexRL runs.

    Parameters
    ----------
    client
        Client of a Dask cluster whose workers for groups announce ``llm:<group>``.
    settings
        Configuration; by default what Dask's configuration says. Only the first client of a
        cluster is asked: PlexRL starts there with its settings, later ones find it running.
    """

    def __init__(self, client: Client, settings: Settings | None = None) -> None:
        self.client = client
        self.settings = settings or read()
        self._specs: dict[str, JobSpec] = {}
        # Registering a worker plugin again would end the services that run.
        if not client.run_on_scheduler(_is_running):
            self._start()

    def _start(self) -> None:
        """Put PlexRL into the scheduler and the workers."""
        # Workers may run in other folders.
        state = replace(self.settings.state, store=absolute(self.settings.state.store))
        run_id = new_run_id()
        self.client.register_plugin(
            PlexRLScheduler(
                self.settings.planning,
                state.host_budget_bytes,
                run_id,
                task_timeout_s=self.settings.cluster.task_timeout_s,
                faces=self.settings.cluster.faces,
            )
        )
        self.client.register_plugin(PlexRLWorker(state, self.settings.engines, run_id))

    def submit(
        self, job: JobSpec, *, resume: bool = False, start: StartVersion | None = None
    ) -> Run:
        """Start a job.

        Parameters
        ----------
        job
            The job.
        resume
            Go on from what the store holds of a job of this name; else finding any is an error.
        start
            Committed version of another job to go on from, with the settings of this one
            (`Run.version`); a shorter way to write ``JobSpec.start``.

        Raises
        ------
        InputError
            The job cannot run as it is described; nothing was started.
        """
        if start is not None:
            job = replace(job, start=start)
        facts = job_facts(job)
        check_start_in_cluster(self.client, job)
        check_rollout_engines(self.client, job)
        check_tracking(self.client, job)
        submission = Submission(facts, cloudpickle.dumps(job), resume)
        self.call(messages.SUBMIT, payload=pack(submission))
        self._specs[job.name] = job
        return Run(self, job.name, job)

    def run(self, name: str) -> Run:
        """The run of a job somebody submitted.

        Raises
        ------
        JobError
            Nobody did.
        """
        self.call(messages.JOB, job=name)
        return Run(self, name, self._specs.get(name))

    def jobs(self) -> list[str]:
        """Names of all jobs, in order of arrival."""
        return list(cast("tuple[str, ...]", self.call(messages.JOBS)))

    def status(self) -> ClusterStatus:
        """The cluster as it stands; of the jobs that ended, the newest thousand."""
        return cast("ClusterStatus", self.call(messages.STATUS))

    def trace(self) -> Trace:
        """The execution log so far."""
        return cast("Trace", self.call(messages.TRACE))

    def plan(self, newest: int | None = None) -> dict[str, Any]:
        """The plan in force and the history of solves, as JSON types.

        Parameters
        ----------
        newest
            Only so many of the newest solves; None: all that are remembered. Of many jobs the
            history is long, and making it holds the scheduler up.
        """
        told = self.call(messages.PLAN, newest=newest)
        return notebook.PlanJson(cast("Mapping[str, Any]", told))

    def _repr_html_(self) -> str:
        return notebook.cluster_html(self.status())

    def drain(self, group: str, reason: str = "", *, now: bool = False) -> str:
        """Let no iteration begin on a group; its jobs go on elsewhere, or wait and say so.

        Parameters
        ----------
        group
            Its name.
        reason, now
            As for `Run.pause`.

        Returns
        -------
        str
            What will happen, in plain words.
        """
        return str(self.call(messages.DRAIN, group=group, reason=reason, is_now=now))

    def undrain(self, group: str) -> str:
        """Let jobs run on a group again after `drain`; returns what will happen."""
        return str(self.call(messages.UNDRAIN, group=group))

    def apply(self, plan: Mapping[str, object]) -> messages.AppliedPlan:
        """Put a plan made elsewhere into force: its orders at once, its placement by moves.

        Jobs over several groups train and sample where the plan serves their functions. Its times
        are replaced by those measured here; the planner goes on from it, and replaces its orders
        only by better ones. A plan of several pools brings the rule it was scored with: its groups
        serve by it until another plan is applied, a plan is asked for, or a job comes to them that
        it leaves out.

        Parameters
        ----------
        plan
            What ``plexrl plan --output`` wrote, as JSON types.

        Raises
        ------
        JobError
            Jobs, groups or functions differ, or it does not hold with the lengths measured here;
            the message has the difference, and nothing was changed.
        """
        answer = self.call(messages.APPLY, plan=json.dumps(plan))
        return cast("messages.AppliedPlan", answer)

    def replan(self, reason: str = "") -> str:
        """Plan now instead of when it is due; returns what will happen."""
        return str(self.call(messages.REPLAN, reason=reason))

    def models(self, job: str) -> Mapping[str, CommittedModel]:
        """Models of a job, as far as they are committed."""
        return cast("Mapping[str, CommittedModel]", self.call(messages.MODELS, job=job))

    def call(self, handler: str, **kwargs: object) -> object:
        """Call a handler of the scheduler plugin; returns what it answers."""
        answer: bytes | None = self.client.sync(_call, self.client, handler, kwargs)
        return None if answer is None else unpack(answer)

    def close(self) -> None:
        """Let go of the cluster; jobs go on."""
        with suppress(OSError):
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def attach(client: Client, *, store: str | Path | None = None) -> Cluster:
    """Run PlexRL on a Dask cluster that is already there.

    Parameters
    ----------
    client
        A client of it. The worker of each group announces the resource ``llm:<group>``
        (``dask worker … --resources "llm:group-0=2" --nthreads 2 --memory-limit 0``); rewards,
        tools and drivers run on the workers that do not.
    store
        Folder of the Zarr store, which all workers reach by the same path, or a URL such as
        ``s3://bucket/prefix``; by default what Dask's configuration says.

    Raises
    ------
    InputError
        PlexRL runs there already, with another store.
    StoreError
        A worker cannot use the store; nothing was started.
    """
    settings = read()
    if store is not None:
        settings = replace(settings, state=replace(settings.state, store=absolute(store)))
    used = client.run_on_scheduler(_store_in_use)
    if used is None:
        ask_workers(client, check_usable, states_of(absolute(settings.state.store)))
    elif store is not None and used != absolute(store):
        raise InputError(
            f"PlexRL runs on {client.scheduler.address} already, with the store {used}, not "
            f"{store}; leave the store out, or attach to another cluster"
        )
    return Cluster(client, settings)


def _is_running(dask_scheduler: Any) -> bool:
    return PLUGIN_NAME in dask_scheduler.plugins


def _store_in_use(dask_scheduler: Any) -> str | None:
    plugin = dask_scheduler.worker_plugins.get(PlexRLWorker.name)
    return None if plugin is None else str(loads(plugin).store)


async def _call(client: Client, handler: str, kwargs: dict[str, object]) -> object:
    return await getattr(client.scheduler, handler)(**kwargs)
