"""The resident LLM service of a group: runs LLM functions, one lease at a time.

It brings the version a function needs to the device, runs the engine, commits what was
trained and says when the lease began and ended. It never decides what runs next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from dataflow.calls import (
    Attached,
    AttachOptions,
    Committed,
    Exported,
    ExportOptions,
    GenerateOptions,
    LLMCall,
    LogprobOptions,
    Trained,
    TrainOptions,
    ValueOptions,
    VersionToken,
)
from dataflow.phases import Phase
from dataflow.samples import Prompt, Rewards, Sample
from dataflow.starts import StartVersion
from plexrl.clock import Clock, system_clock
from plexrl.core.states import Manifest, StateRef, Tier
from plexrl.engines.protocol import ModelSource, TrainBatch
from plexrl.errors import (
    EngineError,
    EngineStoppedError,
    JobError,
    LeaseError,
    ServiceError,
    StateError,
    StoreAwayError,
    VersionFenceError,
)
from plexrl.services.guests import Guests, Hosted
from plexrl.services.lending import Lending
from plexrl.services.lookahead import LookAhead
from plexrl.services.models import (
    EngineFactory,
    ModelTable,
    OpenModel,
    ResidentEngine,
    rollout_source,
    source_key,
)
from plexrl.services.occupancy import Occupancy
from plexrl.services.peers import Peers
from plexrl.services.reports import LeaseEnded, LeaseStarted, Report, ServiceSnapshot
from plexrl.services.rollouts import Ahead, Rollouts, Stopped
from plexrl.state.arena import Arena
from plexrl.state.checksums import digest_of
from plexrl.state.host import Fetched
from plexrl.state.manager import StateManager
from plexrl.state.store import Store
from solver.trace import Outcome

HANDOVER_S = 0.002
"""Seconds until a function that another one follows at once gives its result."""


@dataclass(slots=True)
class _Lease:
    """What one lease did so far."""

    id: str
    started_s: float
    swap_s: float = 0.0
    swap_source: Tier = Tier.DEVICE
    swap_bytes: int = 0
    ahead_s: float = 0.0
    touched: set[str] = field(default_factory=set)


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
        open_store: Callable[[str], AbstractContextManager[Store]],
        lease_timeout_s: float,
        hold_timeout_s: float,
        is_wanted: Callable[[str], bool] = lambda _id: True,
        device_budget_bytes: int | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.group = group
        self._states = states
        self._models = ModelTable(start_engine, device_budget_bytes)
        self._current_id = current_id
        self._report = report
        self._open_store = open_store
        self._clock = clock
        self.guests = Guests(group, states, peers)
        self.lending = Lending(states, clock)
        self.occupancy = Occupancy(group, lease_timeout_s, hold_timeout_s)
        self._is_wanted = is_wanted
        self.rollouts = Rollouts()
        self.ahead = LookAhead(self.occupancy)
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
        lease = _Lease(function_id, self._clock())
        self.rollouts.begin(lease.id)
        self._report(LeaseStarted(lease.id, self.group, lease.started_s))
        outcome, result = Outcome.FAILED, None
        try:
            result = self._run(call, inputs, lease)
            outcome = Outcome.YIELDED if isinstance(result, Stopped) else Outcome.DONE
        except EngineStoppedError:
            outcome = Outcome.CANCELLED
            raise
        finally:
            self.rollouts.end()
            self._report_end(lease, outcome, result if isinstance(result, Trained) else None)
        return result

    def _run(self, call: LLMCall, inputs: tuple[Any, ...], lease: _Lease) -> object:
        options = call.options
        self.ahead.begin(call)
        if isinstance(options, AttachOptions):
            return self._attach(call, options)
        version, *rest = inputs
        assert isinstance(version, VersionToken)
        try:
            match call.function, options:
                case Phase.ROLLOUT | Phase.EVALUATE, GenerateOptions():
                    return self._roll_out(call, version, rest[0], options, lease)
                case Phase.LOGPROB, LogprobOptions():
                    engine = self._bring(call, version, lease)
                    return engine.process.logprobs(rest[0], options)
                case Phase.LOGPROB, ValueOptions():
                    return self._bring(call, version, lease).process.values(rest[0])
                case Phase.TRAIN, TrainOptions():
                    return self._train(call, version, rest, options, lease)
                case Phase.SYNC, ExportOptions():
                    self._open(call, options.model)
                    engine = self._bring(call, version, lease)
                    engine.process.export(options.folder)
                    sha256 = engine.process.weights_sha256()
                    return Exported(options.folder, sha256, version.version)
                case Phase.SYNC, None:
                    self._bring(call, version, lease)
                    return version
                case _:
                    raise ServiceError(
                        f"{call.op} of job {call.job!r} asks for {call.function} with options "
                        f"{options!r}, which no service understands; build it with a job's handles"
                    )
        except EngineError:
            self._models.drop_dead()
            raise

    def _roll_out(
        self,
        call: LLMCall,
        version: VersionToken,
        inputs: Sequence[Prompt] | Sequence[Sample],
        options: GenerateOptions,
        lease: _Lease,
    ) -> object:
        process = self._bring(call, version, lease).process
        ahead = Ahead(self.ahead.begun(lease.id, process), self.ahead.training_after(call))
        with self.ahead.going_on(process, ahead.then):
            found, lease.ahead_s = self.rollouts.run(call, process, inputs, options, ahead)
        self.ahead.note_drawn(found)
        return found

    def _attach(self, call: LLMCall, options: AttachOptions) -> Attached:
        """Open a model; its version 0 is read from the folder if nothing was committed."""
        model = self._open(call, options)
        self._states.check_writable(call.job, call.model)
        known = self._states.latest(call.job, call.model)
        if known is not None:
            manifest = known
        elif options.start is not None:
            manifest = self._fork(model, options.start)
        else:
            manifest = self._import(model, StateRef(call.job, call.model, 0))
        return Attached(
            VersionToken(call.job, call.model, manifest.ref.version, manifest.digest),
            manifest.iteration,
            manifest.data_cursor,
            tuple(
                Committed(past.iteration - 1, past.created_unix_s, tuple(past.metrics.items()))
                for past in self._states.recent(call.job, call.model)
                if past.iteration and past.metrics
            ),
            is_new=known is None,
        )

    def _open(self, call: LLMCall, options: AttachOptions) -> OpenModel:
        # A guest only computes with the weights, so it needs no optimizer.
        is_trainable = options.is_trainable and self.guests.get(call.job) is None
        source = ModelSource(options.folder, is_trainable, options.head, options.lora)
        sampler = rollout_source(source, options.rollout_engine)
        model = OpenModel(
            call.job,
            call.model,
            source,
            source_key(source),
            sampler,
            source_key(sampler),
            call.seed,
            options.durable_every,
            options.num_versions,
        )
        self._models.open(model)
        return model

    def _import(self, model: OpenModel, ref: StateRef) -> Manifest:
        engine = self._models.engine(model)
        arena = self._states.allocate(ref, engine.layout)
        try:
            engine.process.read_folder(model.source.folder, arena)
        except BaseException:
            self._states.abandon(arena)
            raise
        manifest = Manifest(
            ref,
            engine.layout,
            digest_of(arena.view),
            iteration=0,
            optimizer_steps=0,
            data_cursor=0,
            seed=model.seed,
            created_unix_s=self._clock(),
        )
        self._states.commit(manifest, arena, durable=True, keep_versions=model.num_versions)
        return manifest

    def _fork(self, model: OpenModel, start: StartVersion) -> Manifest:
        """Copy a version of another job as the first one of this."""
        source = StateRef(start.job, model.model, start.version)
        with self._open_store(start.store) as store:
            origin = store.manifest(source)
            slots = self._models.engine(model).layout.slots
            if origin.layout.slots[: len(slots)] != slots:
                raise JobError(
                    f"job {model.job!r} starts from {source}, whose tensors are not those of "
                    f"{model.source.folder!r}; name the model folder that job was made from"
                )
            ref = StateRef(model.job, model.model, start.version)
            arena = self._states.allocate(ref, origin.layout)
            try:
                store.read(source, arena.view)
            except BaseException:
                self._states.abandon(arena)
                raise
        # What was measured on the way to it is the history of the other job.
        manifest = replace(
            origin, ref=ref, seed=model.seed, metrics={}, created_unix_s=self._clock()
        )
        self._states.commit(manifest, arena, durable=True, keep_versions=model.num_versions)
        return manifest

    def _bring(self, call: LLMCall, token: VersionToken, lease: _Lease) -> ResidentEngine:
        """Make the version a call needs resident on the device."""
        if (token.job, token.model, token.version) != (call.job, call.model, call.version):
            raise VersionFenceError(
                f"{call.op} of job {call.job!r} needs {call.model}@{call.version} but was given "
                f"{token.job}/{token.model}@{token.version}; give it the token of its own model"
            )
        began = self._clock()
        ref = StateRef(call.job, call.model, call.version)
        model = self._model(call)
        # A sync brings weights to where the model samples.
        is_rollout = call.function.is_sampling or (
            call.function is Phase.SYNC and call.options is None
        )
        engine = (self._models.rollout_engine if is_rollout else self._models.engine)(model)
        self.ahead.use(engine.process)
        if engine.device != ref:
            fetched = self._fetch(ref, token)
            try:
                self._check_token(token, fetched.manifest)
                _check_layout(engine, fetched.manifest)
                loading_s = self._clock()
                self._models.load(engine, ref, fetched.arena)
            finally:
                self._states.release(ref)
            self._states.note_move(
                Tier.HOST, Tier.DEVICE, engine.layout.nbytes, self._clock() - loading_s
            )
            lease.swap_source = fetched.source
            lease.swap_bytes += engine.layout.nbytes
        lease.swap_s += self._clock() - began
        return engine

    def _model(self, call: LLMCall) -> OpenModel:
        hosted = self.guests.get(call.job)
        if hosted is not None and not self._models.is_open(call.job, call.model):
            return self._open(call, hosted.models[call.model])
        return self._models.model(call.job, call.model)

    def _fetch(self, ref: StateRef, token: VersionToken) -> Fetched:
        hosted = self.guests.get(ref.job)
        if hosted is not None:
            return self.guests.bring(hosted, token)
        try:
            return self._states.fetch(ref)
        except StoreAwayError:
            raise
        except StateError as error:
            newest = self._states.latest(ref.job, ref.model)
            if newest is None or newest.ref.version <= ref.version:
                raise
            # Dask lost a result, and computes anew what led to it.
            raise VersionFenceError(
                f"{ref} is gone, {newest.ref} has taken its place: a function that was done is "
                "run again; the driver goes back to what is committed"
            ) from error

    def _check_token(self, token: VersionToken, manifest: Manifest) -> None:
        if token.digest != manifest.digest:
            raise VersionFenceError(
                f"{manifest.ref} on group {self.group!r} has digest {manifest.digest}, but the job "
                f"speaks of {token.digest}: another run wrote under the same name; give this job "
                "another name or an empty store"
            )

    def _train(
        self,
        call: LLMCall,
        token: VersionToken,
        inputs: Sequence[Any],
        options: TrainOptions,
        lease: _Lease,
    ) -> Trained:
        before = self._states.latest(call.job, call.model)
        recorded = _recorded(call, before)
        if recorded is not None:
            return recorded
        engine = self._bring(call, token, lease)
        samples, advantages, rewards, old_logprobs, *reference_logprobs = inputs
        batch = TrainBatch(samples, advantages, old_logprobs, *reference_logprobs)
        self.ahead.note_trained(call, samples, options)
        ref = StateRef(call.job, call.model, call.version + 1)
        # Room first: training that could not be committed would be lost work.
        arena = self._states.allocate(ref, engine.layout)
        try:
            engine.device = None
            # The engine has the weights then, and need not wait until they are committed.
            is_alone = self._models.is_all_of(call.job, call.model, engine)
            then = self.ahead.rollout_after(call, engine.process) if is_alone else None
            with self.ahead.going_on(engine.process, then):
                found = self.rollouts.train(call, engine.process, batch, options, arena, then)
            self._states.note_move(Tier.DEVICE, Tier.HOST, arena.nbytes, found.store_s)
            lease.ahead_s = found.ahead_s
            metrics = {**found.metrics, **_reward_metrics(rewards)}
            return self._commit(call, engine, arena, metrics, before)
        except BaseException:
            with suppress(StateError):  # it was committed, and what failed came after
                self._states.abandon(arena)
            raise

    def _commit(
        self,
        call: LLMCall,
        engine: ResidentEngine,
        arena: Arena,
        metrics: Mapping[str, float],
        before: Manifest | None,
    ) -> Trained:
        """Make a version of the state in an arena, which follows the newest one before."""
        model = self._models.model(call.job, call.model)
        ref = StateRef(call.job, call.model, call.version + 1)
        manifest = Manifest(
            ref,
            engine.layout,
            digest_of(arena.view),
            iteration=call.iteration + 1,
            optimizer_steps=(before.optimizer_steps if before else 0)
            + int(metrics.get("optimizer_steps", 1)),
            data_cursor=call.data_cursor,
            seed=call.seed,
            metrics=metrics,
            created_unix_s=self._clock(),
        )
        is_due = ref.version % model.durable_every == 0 or call.may_be_last
        self._states.commit(manifest, arena, durable=is_due, keep_versions=model.num_versions)
        engine.device = ref
        token = VersionToken(call.job, call.model, ref.version, manifest.digest)
        return Trained(token, tuple(metrics.items()))

    def _report_end(self, lease: _Lease, outcome: Outcome, trained: Trained | None) -> None:
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
            store=self._states.store_use(),
        )

    def close(self) -> None:
        """End the engines, and write what is committed as durable and not yet written."""
        self.occupancy.close()
        try:
            self._models.close()
        finally:
            self._states.close()


def _check_layout(engine: ResidentEngine, manifest: Manifest) -> None:
    """An engine reads a state from its start, to the end or less far."""
    slots = engine.layout.slots
    if manifest.layout.slots[: len(slots)] != slots:
        raise ServiceError(
            f"the {engine.process.source.kind} engine of {engine.process.source.folder!r} reads "
            f"another layout than that of {manifest.ref}; take rollout_engine='torch' for it"
        )


def _recorded(call: LLMCall, newest: Manifest | None) -> Trained | None:
    """Result of a train call that has already committed; None if it has not.

    Raises
    ------
    VersionFenceError
        The call follows another version than the newest committed one.
    """
    committed = newest.ref.version if newest else -1
    if committed == call.version:
        return None
    is_next = newest is not None and committed == call.version + 1
    if newest is not None and is_next and newest.iteration == call.iteration + 1:
        token = VersionToken(call.job, call.model, committed, newest.digest)
        return Trained(token, tuple(newest.metrics.items()))
    raise VersionFenceError(
        f"train of job {call.job!r} (iteration {call.iteration}) follows version "
        f"{call.version} of {call.model!r}, but version {committed} is the committed one; the "
        "driver goes back to it and builds the iteration anew"
    )


def _reward_metrics(rewards: Rewards | None) -> dict[str, float]:
    if rewards is None:
        return {}
    return {
        "reward_mean": sum(rewards.values) / len(rewards.values),
        "judge_delay_s": rewards.delay_s,
        **dict(rewards.metrics),
    }
