"""What a group computes under its lease: attach, rollout, logprobs, values, training, sync.

Each brings the version it needs to the device and runs the engine; training commits the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dataflow.calls import (
    AttachOptions,
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
from plexrl.clock import Clock
from plexrl.core.states import Manifest, StateRef, Tier
from plexrl.engines.protocol import TrainBatch
from plexrl.errors import EngineError, ServiceError, StateError, StoreAwayError, VersionFenceError
from plexrl.services.guests import Guests
from plexrl.services.lookahead import LookAhead
from plexrl.services.models import ModelTable, OpenModel, ResidentEngine
from plexrl.services.opening import Opening, OpenStore
from plexrl.services.rollouts import Ahead, Rollouts
from plexrl.state.arena import Arena
from plexrl.state.checksums import digest_of
from plexrl.state.host import Fetched
from plexrl.state.manager import StateManager


@dataclass(slots=True, eq=False)
class LeaseWork:
    """What was done under one lease so far."""

    id: str
    started_s: float
    swap_s: float = 0.0
    swap_source: Tier = Tier.DEVICE
    swap_bytes: int = 0
    ahead_s: float = 0.0


class Functions:
    """Runs LLM functions on the engines of a group; used under its lease.

    Parameters
    ----------
    group
        Name of the group, for messages.
    states
        Keeps the states of this group's jobs.
    models
        Which models are open, and their engines.
    guests
        Which jobs are at home elsewhere, and copies of their versions.
    rollouts
        Runs what can stop in the middle.
    ahead
        What engines do while nobody asks.
    open_store
        Reaches versions that jobs start from.
    """

    def __init__(
        self,
        group: str,
        *,
        states: StateManager,
        models: ModelTable,
        guests: Guests,
        rollouts: Rollouts,
        ahead: LookAhead,
        open_store: OpenStore,
        clock: Clock,
    ) -> None:
        self._group = group
        self._states = states
        self._models = models
        self._guests = guests
        self._rollouts = rollouts
        self._ahead = ahead
        self._clock = clock
        self._opening = Opening(models, states, guests, open_store, clock)

    def run(self, call: LLMCall, inputs: tuple[Any, ...], lease: LeaseWork) -> object:
        """Run a call.

        Parameters
        ----------
        call, inputs
            As those of `plexrl.services.service.GroupService`.
        lease
            Where it is noted what was moved, and computed ahead.

        Returns
        -------
        object
            What the function gives, or `plexrl.services.rollouts.Stopped`.

        Raises
        ------
        PlexRLError
            Whatever the function ends with; the state stays as it was.
        """
        options = call.options
        self._ahead.begin(call)
        if isinstance(options, AttachOptions):
            return self._opening.attach(call, options)
        version, *rest = inputs
        assert isinstance(version, VersionToken)
        try:
            match call.function, options:
                case Phase.ROLLOUT | Phase.EVALUATE, GenerateOptions():
                    return self._roll_out(call, version, rest[0], options, lease)
                case Phase.LOGPROB, LogprobOptions() | ValueOptions():
                    return self._score(call, version, rest[0], options, lease)
                case Phase.TRAIN, TrainOptions():
                    return self._train(call, version, rest, options, lease)
                case Phase.SYNC, ExportOptions():
                    return self._export(call, version, options, lease)
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

    def _export(
        self, call: LLMCall, version: VersionToken, options: ExportOptions, lease: LeaseWork
    ) -> Exported:
        """Write a version as a folder; the job may have ended long ago."""
        was_open = self._models.is_open(call.job, call.model)
        self._opening.open(call, options.model)
        try:
            process = self._bring(call, version, lease).process
            process.export(options.folder)
            return Exported(options.folder, process.weights_sha256(), version.version)
        finally:
            if not was_open:
                # Engines compute ahead only where no other job's model is open.
                self._models.forget(call.job, call.model)

    def _roll_out(
        self,
        call: LLMCall,
        version: VersionToken,
        inputs: Sequence[Prompt] | Sequence[Sample],
        options: GenerateOptions,
        lease: LeaseWork,
    ) -> object:
        process = self._bring(call, version, lease).process
        ahead = Ahead(self._ahead.begun(lease.id, process), self._ahead.training_after(call))
        with self._ahead.going_on(process, ahead.then):
            found, lease.ahead_s = self._rollouts.run(call, process, inputs, options, ahead)
        self._ahead.note_drawn(found, process)
        return found

    def _score(
        self,
        call: LLMCall,
        version: VersionToken,
        samples: Sequence[Sample],
        options: LogprobOptions | ValueOptions,
        lease: LeaseWork,
    ) -> object:
        process = self._bring(call, version, lease).process
        if isinstance(options, LogprobOptions):
            found = process.logprobs(samples, options)
        else:
            found = process.values(samples)
        self._ahead.note_scored(call, samples)
        return found

    def _bring(self, call: LLMCall, token: VersionToken, lease: LeaseWork) -> ResidentEngine:
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
        self._ahead.use(engine.process)
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
        hosted = self._guests.get(call.job)
        if hosted is not None and not self._models.is_open(call.job, call.model):
            return self._opening.open(call, hosted.models[call.model])
        return self._models.model(call.job, call.model)

    def _fetch(self, ref: StateRef, token: VersionToken) -> Fetched:
        hosted = self._guests.get(ref.job)
        if hosted is not None:
            return self._guests.bring(hosted, token)
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
                f"{manifest.ref} on group {self._group!r} has digest {manifest.digest}, but the "
                f"job speaks of {token.digest}: another run wrote under the same name; give this "
                "job another name or an empty store"
            )

    def _train(
        self,
        call: LLMCall,
        token: VersionToken,
        inputs: Sequence[Any],
        options: TrainOptions,
        lease: LeaseWork,
    ) -> Trained:
        before = self._states.latest(call.job, call.model)
        recorded = _recorded(call, before)
        if recorded is not None:
            return recorded
        engine = self._bring(call, token, lease)
        samples, advantages, rewards, old_logprobs, *reference_logprobs = inputs
        batch = TrainBatch(samples, advantages, old_logprobs, *reference_logprobs)
        self._ahead.note_trained(call, samples, options)
        ref = StateRef(call.job, call.model, call.version + 1)
        # Room first: training that could not be committed would be lost work.
        arena = self._states.allocate(ref, engine.layout)
        try:
            engine.device = None
            # The engine has the weights then, and need not wait until they are committed.
            is_alone = self._models.is_all_of(call.job, call.model, engine)
            then = self._ahead.rollout_after(call, engine.process) if is_alone else None
            with self._ahead.going_on(engine.process, then):
                found = self._rollouts.train(call, engine.process, batch, options, arena, then)
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
