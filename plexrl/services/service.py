"""The resident LLM service of a group: runs LLM functions, one lease at a time.

It says when a lease began and ended, keeps the jobs it computes for, and takes hints of what comes
next. It never decides what runs next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from dataflow.calls import LLMCall, Trained
from dataflow.phases import Phase
from plexrl.clock import Clock, system_clock
from plexrl.core.states import Tier
from plexrl.errors import EngineStoppedError, LeaseError, ServiceError, StoreAwayError
from plexrl.services.functions import Functions, LeaseWork
from plexrl.services.guests import Guests, Hosted
from plexrl.services.lending import Lending
from plexrl.services.lookahead import LookAhead
from plexrl.services.models import EngineFactory, ModelTable
from plexrl.services.occupancy import Occupancy
from plexrl.services.opening import OpenStore
from plexrl.services.peers import Peers
from plexrl.services.reports import LeaseEnded, LeaseStarted, Report, ServiceSnapshot
from plexrl.services.rollouts import Rollouts, Stopped
from plexrl.state.manager import StateManager
from solver.trace import Outcome

HANDOVER_S = 0.002
"""Seconds until a function that another one follows at once gives its result."""


class GroupService:
    """Executes the LLM calls of one group (a `dataflow.calls.Executor`).

    Parameters
    ----------
    group
        Name of the group.
    states
        Keeps the states of this group's jobs in host memory and `store`.
    start_engine
        Starts the engine process of an architecture.
    peers
        Reaches the services of other groups.
    current_id
        Returns the id of the task that runs in the calling thread.
    report
        Takes reports; called from the thread of the lease.
    open_store
        Opens the store of this name to read from; an empty name is the cluster's own.
    lease_timeout_s
        Seconds a function waits for the one before it to end.
    hold_timeout_s
        The same for a gang that another group leads.
    is_wanted
        Whether a function that waited for the group shall still run; by default it shall.
    device_budget_bytes
        See `plexrl.config.EngineConfig`.
    """

    def __init__(
        self,
        group: str,
        *,
        states: StateManager,
        start_engine: EngineFactory,
        peers: Peers,
        current_id: Callable[[], str],
        report: Callable[[Report], None],
        open_store: OpenStore,
        lease_timeout_s: float,
        hold_timeout_s: float,
        is_wanted: Callable[[str], bool] = lambda _id: True,
        device_budget_bytes: int | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.group = group
        self._states = states
        self._models = ModelTable(start_engine, device_budget_bytes)
        self._current_id, self._is_wanted = current_id, is_wanted
        self._report = report
        self._clock = clock
        self.guests = Guests(group, states, peers)
        self.lending = Lending(states, clock)
        self.occupancy = Occupancy(group, lease_timeout_s, hold_timeout_s)
        self.rollouts = Rollouts()
        self.ahead = LookAhead(self.occupancy)
        self._functions = Functions(
            group,
            states=states,
            models=self._models,
            guests=self.guests,
            rollouts=self.rollouts,
            ahead=self.ahead,
            open_store=open_store,
            clock=clock,
        )
        self._leaving: set[str] = set()
        """Jobs that shall be let go of."""

    def __call__(self, call: LLMCall, inputs: tuple[Any, ...]) -> object:
        """Run a call under the lease of the group.

        Parameters
        ----------
        call
            What to run.
        inputs
            The token of the version it works on, then what the function takes.

        Returns
        -------
        object
            What the function gives; `plexrl.services.rollouts.Stopped` if it yielded its lease and
            wants to be run again.

        Raises
        ------
        LeaseError
            Another function did not leave the group in time, or nobody wants this one any more.
        PlexRLError
            Whatever the function itself ends with; the state stays as it was.
        """
        function_id = self._current_id()
        hosted = self.guests.get(call.job)
        # A sync holds the group it runs on and the job's home.
        lead = hosted if call.function is Phase.SYNC else None
        with (
            self.occupancy.of(function_id, f"{call.op} of job {call.job!r}"),
            nullcontext() if lead is None else self.guests.gang(lead, function_id),
        ):
            if not self._is_wanted(function_id):
                raise LeaseError(f"{call.op} of job {call.job!r} was cancelled while it waited")
            result = self._run_under_lease(call, inputs, function_id)
            is_followed = self.occupancy.is_awaited
        if is_followed:
            # Its thread gives the engine its work meanwhile; both would want the interpreter.
            time.sleep(HANDOVER_S)
        return result

    def _run_under_lease(self, call: LLMCall, inputs: tuple[Any, ...], function_id: str) -> object:
        lease = LeaseWork(function_id, self._clock())
        self.rollouts.begin(lease.id)
        self._report(LeaseStarted(lease.id, self.group, lease.started_s))
        outcome, result = Outcome.FAILED, None
        try:
            result = self._functions.run(call, inputs, lease)
            outcome = Outcome.YIELDED if isinstance(result, Stopped) else Outcome.DONE
        except EngineStoppedError:
            outcome = Outcome.CANCELLED
            raise
        finally:
            self.rollouts.end()
            self._report_end(lease, outcome, result if isinstance(result, Trained) else None)
        return result

    def _report_end(self, lease: LeaseWork, outcome: Outcome, trained: Trained | None) -> None:
        self._report(
            LeaseEnded(
                lease.id,
                self.group,
                lease.started_s,
                self._clock(),
                lease.swap_s,
                lease.swap_source,
                lease.swap_bytes,
                outcome,
                self.snapshot(),
                trained,
                lease.ahead_s,
            )
        )

    def prefetch(self, job: str, model: str) -> None:
        """Bring the newest version of a model to host memory, in the background."""
        if self.guests.get(job) is not None:
            return
        # A hint: what is wrong with the store shows again when the version is fetched.
        with suppress(StoreAwayError):
            manifest = self._states.latest(job, model)
            if manifest is not None:
                self._states.prefetch(manifest.ref)

    def yield_lease(self, function_id: str) -> None:
        """Let a rollout that holds the lease stop after the token it is at, and go on later."""
        self.rollouts.ask(function_id)

    def set_next_use(self, order: Sequence[tuple[str, str]]) -> None:
        """Say which ``(job, model)`` are used next, soonest first, so that eviction can tell."""
        self._states.set_next_use(order)

    def host(self, hosted: Hosted) -> None:
        """Take a job, or news of it."""
        self._leaving.discard(hosted.job)
        self.guests.host(hosted)
        self.rollouts.note_cancelled(hosted.job, hosted.cancelled)

    def hold(self, holder: str) -> None:
        """Run nothing, and compute nothing ahead, until the group is let go of.

        Raises
        ------
        LeaseError
            What runs here did not end in time.
        """
        self.occupancy.hold(holder)
        self.ahead.rest()

    def leave(self, job: str) -> None:
        """A job shall be let go of, unless it is hosted again before."""
        self._leaving.add(job)
        self.guests.forget(job)

    def forget_job(self, job: str, timeout_s: float) -> None:
        """Let go of a job that ended, once its newest versions are durable.

        Raises
        ------
        ServiceError
            It was hosted again since `leave`.
        """
        # A function that was cancelled while it ran may commit one more version.
        with self.occupancy.between_functions():
            if job not in self._leaving:
                raise ServiceError(f"job {job!r} is back on group {self.group!r}")
            self._models.forget(job)
            self.rollouts.forget(job)
            self.ahead.forget(job)
        self.lending.forget(job)
        self._states.flush(timeout_s)
        self._states.drop_job(job, timeout_s)
        self._leaving.discard(job)

    def snapshot(self) -> ServiceSnapshot:
        """The service as it stands."""
        on_device = tuple(str(ref) for ref in self._models.devices())
        return ServiceSnapshot(
            traffic=self._states.traffic(),
            host_used_bytes=self._states.host_used_bytes,
            host_budget_bytes=self._states.host_budget_bytes,
            resident={**self._states.resident(), Tier.DEVICE: on_device},
            engine_pid=self._models.engine_pid,
            num_engine_starts=self._models.num_engine_starts,
            num_engine_restarts=self._models.num_engine_restarts,
            store=self._states.store_use(),
        )

    def close(self) -> None:
        """End the engines, and write what is committed as durable and not yet written."""
        self.occupancy.close()
        try:
            self._models.close()
        finally:
            self._states.close()
