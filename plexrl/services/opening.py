"""Opens the models of jobs on a group, and makes the first version of those that have none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from dataflow.calls import Attached, AttachOptions, Committed, LLMCall, VersionToken
from dataflow.starts import StartVersion
from plexrl.clock import Clock
from plexrl.core.states import Manifest, StateRef
from plexrl.engines.protocol import ModelSource
from plexrl.errors import JobError
from plexrl.services.guests import Guests
from plexrl.services.models import ModelTable, OpenModel, rollout_source, source_key
from plexrl.state.checksums import digest_of
from plexrl.state.manager import StateManager
from plexrl.state.store import Store

OpenStore = Callable[[str], AbstractContextManager[Store]]
"""Opens the store of a name to read from; an empty name is the cluster's own."""


class Opening:
    """Opens models; used under the lease of the group.

    Parameters
    ----------
    models
        Where they are noted, and their engines.
    states
        Keeps their versions.
    guests
        Which jobs are at home elsewhere.
    open_store
        Reaches versions of other jobs.
    """

    def __init__(
        self,
        models: ModelTable,
        states: StateManager,
        guests: Guests,
        open_store: OpenStore,
        clock: Clock,
    ) -> None:
        self._models = models
        self._states = states
        self._guests = guests
        self._open_store = open_store
        self._clock = clock

    def attach(self, call: LLMCall, options: AttachOptions) -> Attached:
        """Open a model; its version 0 is read from the folder if nothing was committed."""
        model = self.open(call, options)
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

    def open(self, call: LLMCall, options: AttachOptions) -> OpenModel:
        """Note a model as its job describes it."""
        # A guest only computes with the weights, so it needs no optimizer.
        is_trainable = options.is_trainable and self._guests.get(call.job) is None
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
