"""What users hold of a job that runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

import dask
from dask.delayed import delayed
from distributed import Client

from dataflow.annotations import ANNOTATION, annotation_of
from dataflow.calls import Exported, ExportOptions, LLMCall, run_call
from dataflow.checking import first_step, nodes_of
from dataflow.inspect import draw
from dataflow.jobs import JobSpec
from dataflow.keys import node_key
from dataflow.phases import Phase
from dataflow.starts import StartVersion
from plexrl.core.status import ClusterStatus, JobStatus
from plexrl.errors import JobError, JobFailedError
from plexrl.ids import new_run_id
from plexrl.runtime import messages, notebook, sample_log
from plexrl.runtime.attaching import NO_ITERATION
from plexrl.runtime.drawing import rows_drawn
from plexrl.runtime.messages import CommittedModel
from plexrl.runtime.progress import Show, shower
from solver.trace import IterationRecord

WAIT_S = 5.0
"""Seconds the scheduler may take to answer one wait: longer ones are asked for again, so that a
scheduler that died is noticed."""

LOOK_S = 0.5
"""Seconds between looks of `Run.progress`, as the pages have it."""

SAMPLES_WAIT_S = 60.0
"""Seconds a worker without a group may take to read the samples of an iteration."""

EXPORT_WAIT_S = 600.0
"""Seconds an export may take: it waits for its turn on the group, then writes the model."""


class Host(Protocol):
    """The cluster of a run, as far as a run needs it."""

    @property
    def client(self) -> Client:
        """Client of the Dask cluster."""
        ...

    def call(self, handler: str, **kwargs: object) -> object:
        """Call a handler of the scheduler plugin; returns what it answers."""
        ...

    def status(self) -> ClusterStatus:
        """The cluster as it stands."""
        ...

    def models(self, job: str) -> Mapping[str, CommittedModel]:
        """Models of a job, as far as they are committed."""
        ...


class Run:
    """One submitted job."""

    def __init__(self, cluster: Host, name: str, spec: JobSpec | None) -> None:
        self._cluster = cluster
        self.name = name
        self._spec = spec

    def __repr__(self) -> str:
        status = self.status()
        return f"<Run {self.name}: {status.state}, {status.iteration}/{status.iterations}>"

    def _repr_html_(self) -> str:
        return notebook.run_html(self.status())

    def status(self) -> JobStatus:
        """The job as it stands."""
        return cast("JobStatus", self._cluster.call(messages.JOB, job=self.name))

    def wait(self, timeout_s: float | None = None) -> JobStatus:
        """Wait until the job has ended, however it did.

        Raises
        ------
        TimeoutError
            It did not end in time; the message says what it waits for.
        """
        return self._wait(timeout_s, WAIT_S, lambda _status: None)

    def progress(self, timeout_s: float | None = None) -> JobStatus:
        """Wait as `wait` does, and show how far the job is.

        In a notebook it is a table that changes, in a terminal one line, elsewhere ten lines.

        Raises
        ------
        TimeoutError
            It did not end in time; the message says what it waits for.
        """
        return self._wait(timeout_s, LOOK_S, shower())

    def _wait(self, timeout_s: float | None, every_s: float, show: Show) -> JobStatus:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = every_s if deadline is None else min(every_s, deadline - time.monotonic())
            answer = self._cluster.call(messages.WAIT, job=self.name, timeout_s=max(0.0, left_s))
            status = cast("JobStatus", answer)
            show(status)
            if status.state.is_terminal:
                return status
            if left_s <= 0:
                raise TimeoutError(
                    f"job {self.name!r} is at iteration {status.iteration} of {status.iterations} "
                    f"after {timeout_s:g} s; it waits for {status.waits_for or status.phase}"
                )

    def result(self, timeout_s: float | None = None) -> JobStatus:
        """Wait until the job has finished.

        Raises
        ------
        JobFailedError
            It failed or was cancelled.
        """
        status = self.wait(timeout_s)
        if status.state != "finished":
            raise JobFailedError(
                f"job {self.name!r} {status.state} after {status.iteration} of "
                f"{status.iterations} iterations: {status.error or 'somebody cancelled it'}"
            )
        return status

    def metrics(self) -> list[dict[str, float]]:
        """One row per committed iteration: when, how long, and what was measured.

        Iterations of earlier lives of the cluster come from the store, at times before this life.
        """
        answer = self._cluster.call(messages.METRICS, job=self.name)
        records = cast("tuple[IterationRecord, ...]", answer)
        return [
            {
                "iteration": record.iteration,
                "started_s": record.started_s,
                "ended_s": record.ended_s,
                "duration_s": record.ended_s - record.started_s,
                **dict(record.metrics),
            }
            for record in sorted(records, key=lambda record: record.iteration)
        ]

    def samples(
        self, iteration: int | None = None, model: str = sample_log.ACTOR
    ) -> list[dict[str, object]]:
        """What was sampled in an iteration, and what it earned: one row per sample.

        Parameters
        ----------
        iteration
            A committed iteration, by default the newest one.
        model
            Whose samples.

        Returns
        -------
        list of dict
            Rows of `dataflow.samples.table`: ``prompt``, ``completion``, ``reward``,
            ``advantage``, ``end`` and more; ``pandas.DataFrame`` takes it as it is.

        Raises
        ------
        InputError
            None are kept of this iteration.
        TimeoutError
            No worker without a group answered in time.
        """
        ask = self._cluster.client.submit
        rows = ask(sample_log.read_here, self.name, iteration, model, pure=False)
        found: list[dict[str, object]] = rows.result(SAMPLES_WAIT_S)
        return found

    def drawing(self) -> list[dict[str, int]]:
        """Samples that are being drawn right now, those with most tokens first.

        Returns
        -------
        list of dict
            ``prompt_index`` and ``sample_index``, for `cancel_sample`, and ``num_tokens``, drawn
            in this turn until the last sign of life of the engine, which it gives every second.
            Empty while the job draws none.
        """
        groups = self._cluster.status().groups
        holding = [group.worker for group in groups if group.holder == self.name and group.worker]
        return rows_drawn(self._cluster.client, self.name, holding)

    def version(self, version: int) -> StartVersion:
        """A committed version of this job, for others to start from.

        Its weights, optimizer and place in the data; `Cluster.submit` says whether the store still
        has it.
        """
        return StartVersion(self.name, version)

    def export(
        self, folder: str | Path, model: str = "actor", *, timeout_s: float = EXPORT_WAIT_S
    ) -> str:
        """Write the newest committed version as a Hugging Face folder.

        Returns
        -------
        str
            SHA-256 of the weights, over names and bytes.

        Raises
        ------
        JobError
            No version of this model is committed.
        TimeoutError
            It was not written in time, and is called off.
        """
        known = self._cluster.models(self.name).get(model)
        if known is None or known.token is None:
            raise JobError(
                f"job {self.name!r} has no committed version of a model {model!r} yet; wait for "
                "its first iteration, or name one of its trained models"
            )
        call = LLMCall(
            job=self.name,
            model=model,
            function=Phase.SYNC,
            iteration=NO_ITERATION,
            turn=1,
            version=known.token.version,
            seed=0,
            options=ExportOptions(str(Path(folder).absolute()), known.options),
        )
        key = node_key("export", job=self.name, iteration=0, model=model, run=new_run_id())
        with dask.annotate(**{ANNOTATION: annotation_of(call)}):
            node = delayed(run_call, pure=False)(call, known.token, dask_key_name=key)
        # Once more, should the engine die: nothing but the folder is written.
        future = self._cluster.client.compute(node, optimize_graph=False, retries=1)
        try:
            exported: Exported = future.result(timeout_s)
        except TimeoutError as late:
            if future.done():
                raise
            future.cancel()
            raise TimeoutError(
                f"model {model!r} of job {self.name!r} was not written to {folder} within "
                f"{timeout_s:g} s: it waits for its turn on the job's group (plexrl status); give "
                "a longer timeout_s, or take it from the store (plexrl store export)"
            ) from late
        return exported.weights_sha256

    def cancel(self) -> None:
        """End the job; what it committed stays."""
        self._cluster.call(messages.CANCEL, job=self.name)

    def pause(self, reason: str = "", *, now: bool = False) -> str:
        """Let the job rest: its group is free, its states are in the store.

        Parameters
        ----------
        reason
            For the status, so that others know.
        now
            End the iteration that runs, which is then done again, instead of waiting for it.

        Returns
        -------
        str
            What will happen, in plain words.
        """
        return self._ask(messages.PAUSE, reason=reason, is_now=now)

    def unpause(self) -> str:
        """Let the job go on after `pause`, where there is room; returns what will happen."""
        return self._ask(messages.UNPAUSE)

    def move(self, group: str, reason: str = "", *, now: bool = False) -> str:
        """Place the job on another group once its iteration has ended; returns what will happen.

        Parameters
        ----------
        group
            Where to.
        reason, now
            As for `pause`.
        """
        return self._ask(messages.MOVE, group=group, reason=reason, is_now=now)

    def replay(self) -> str:
        """End the iteration that runs, and do it again from the last committed version."""
        return self._ask(messages.REPLAY)

    def cancel_sample(self, prompt_index: int, sample_index: int) -> str:
        """End one sample with the token it is at; the others of its iteration go on.

        It ends as ``cancelled`` and nothing is learned from it: its tokens do not count in
        training, and the advantages of the others of its prompt are those without it.

        Parameters
        ----------
        prompt_index, sample_index
            As `samples` has them; a sample that is not drawn yet ends with its first token.

        Returns
        -------
        str
            What will happen, in plain words.
        """
        return self._ask(
            messages.CANCEL_SAMPLE, prompt_index=prompt_index, sample_index=sample_index
        )

    def _ask(self, handler: str, **kwargs: object) -> str:
        return str(self._cluster.call(handler, job=self.name, **kwargs))

    def graph(self, path: str | Path | None = None) -> notebook.Picture:
        """Draw the graph of an iteration; of one that depends on data, its first part.

        Parameters
        ----------
        path
            File to write, ``.svg`` or ``.html``; by default ``<job>-graph.svg``.

        Returns
        -------
        Picture
            Its ``path`` is the file; in a notebook it shows itself.
        """
        if self._spec is None:
            raise JobError(
                f"job {self.name!r} was submitted by another client; draw it where its spec is"
            )
        target = Path(f"{self.name}-graph.svg") if path is None else path
        title = f"One iteration of {self.name}"
        return notebook.Picture(draw(nodes_of(first_step(self._spec)), target, title))
