"""The driver of a job: builds its iterations, watches them, rolls back and goes on.

An asyncio task in a worker without a group. It submits one iteration ahead: the graph of
iteration *t*+1 depends on the future of *t*'s train function, so that its rollout is held at
the scheduler, and ready, the moment the new version exists.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import cloudpickle
from dask.delayed import Delayed, delayed
from distributed import Client, Future
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError

from dataflow.calls import Attached, Committed, Trained, VersionToken
from dataflow.iteration import Iteration, build_iteration
from dataflow.jobs import JobSpec
from dataflow.stepping import Compute, PipelineRun
from plexrl.clock import Clock
from plexrl.errors import JobError, PlexRLError, StoreAwayError, VersionFenceError
from plexrl.runtime import sample_log
from plexrl.runtime.attaching import attach_nodes
from plexrl.runtime.ending import until_stored
from plexrl.runtime.evaluator import Evaluator
from plexrl.runtime.messages import (
    Drive,
    DriverEnded,
    DriverEvent,
    DriverStarted,
    DriverSteppedAside,
    DriverWaits,
    IterationCommitted,
    Order,
)
from plexrl.runtime.metrics_log import MetricsLog
from plexrl.runtime.registry import states_of
from plexrl.runtime.sample_log import SampleLog
from plexrl.runtime.sources import wait_asked
from plexrl.runtime.together import LOST, run_together
from plexrl.runtime.tracking import Tracking
from solver.trace import IterationRecord

logger = logging.getLogger("plexrl.driver")

AHEAD = 1
"""Iterations submitted beyond the one that runs: one hides the time of building and submitting
a graph; more would only hold more samples."""

MAX_ATTEMPTS_WITHOUT_PROGRESS = 4
"""Rollbacks in a row without a committed iteration after which a job is given up."""

RETRY_PAUSE_S = 0.5
"""Pause before a rollback is retried, times the number of attempts: a worker needs about a second
to come back."""

KEEP_PRIORITY = -10
"""Dask's priority of keeping samples: after everything that a job waits for."""

MAX_STORE_PAUSE_S = 5.0
"""Longest pause before a store that is away is tried again: somebody who brought it back waits."""


class _SteppedAsideError(Exception):
    """The iteration that ran has committed, and the driver shall end."""


@dataclass(slots=True, eq=False)
class Position:
    """Where a job stands: what the next iteration is built from."""

    index: int
    """Next iteration."""
    cursor: int
    """Prompts consumed before it."""
    tokens: dict[str, Any]
    """Model → newest version token, or the future of the train function that makes it."""
    versions: dict[str, int]
    earlier: tuple[IterationRecord, ...] = ()
    """Iterations before it, as far as the store remembers them."""


@dataclass(slots=True, eq=False)
class InFlight:
    """One iteration that was submitted."""

    index: int
    trained: dict[str, Future]
    """Model → future of its train function."""
    others: list[Future] = field(default_factory=list)
    """Terminal nodes that are no train function."""
    kept: list[Future] = field(default_factory=list)
    """What keeps the samples for people to look at."""
    evaluation: Future | None = None
    """Metrics of the evaluation that follows it, where one is due."""


class JobDriver:
    """Drives one job to its end.

    Parameters
    ----------
    drive
        The job.
    client
        Asynchronous client in the worker the driver lives in.
    send
        Tells the scheduler what happened.
    clock
        System clock.
    store
        Where samples and metrics are kept and trackers write.
    trackers
        The thread that trackers are told in.
    """

    def __init__(
        self,
        drive: Drive,
        client: Client,
        send: Callable[[DriverEvent], None],
        clock: Clock,
        store: str,
        trackers: Executor,
    ) -> None:
        self.job = drive.name
        self._drive = drive
        self._client = client
        self._send = send
        self._clock = clock
        self._store = store
        self._trackers = trackers
        self._samples = SampleLog(store)
        self._log = MetricsLog(store)
        self._tracking: Tracking | None = None
        self._attempt = self._num_committed = 0
        self._num_stalls = self._num_waits = 0
        """Failures, and times that the store was away, without a committed iteration between."""
        self._pause_s = 0.0
        """Before the next try."""
        self._held: dict[int, list[Future]] = {}
        """Iteration → everything computed for it; held until it has committed."""
        self._trained: deque[Mapping[str, Future]] = deque()
        """Train functions of the newest committed iterations."""
        self._newest: tuple[VersionToken, ...] = ()
        """Versions that the newest committed iteration made."""
        self._current = 0
        """Iteration that commits next."""
        self._task: asyncio.Task[None] | None = None
        self._interruption: Order | None = None
        """What the task was cancelled for."""
        self._is_attached = self._is_leaving = False
        """Whether its models were opened, and whether to end when the iteration has committed."""
        self._why_over = ""
        """Why the job ends before its last iteration."""

    def order(self, order: Order) -> None:
        """Do something else than go on; called in the driver's event loop."""
        if order is Order.STEP_ASIDE:
            self._is_leaving = True
            for index in [index for index in self._held if index > self._current]:
                # Nothing of what was submitted ahead shall begin.
                _release(self._held.pop(index))
        elif self._task is not None:
            is_cancelled, self._interruption = self._interruption is not None, order
            if not is_cancelled:
                self._task.cancel()

    async def run(self) -> None:
        """Run the job until it has finished or failed, or this driver steps aside; says which."""
        error = ""
        self._task = asyncio.current_task()
        try:
            spec: JobSpec = cloudpickle.loads(self._drive.spec)
            self._tracking = Tracking(spec, self._store, self._trackers)
            if not await self._run_with_rollbacks(spec):
                self._send(DriverSteppedAside(self.job))
                return
        except asyncio.CancelledError:
            raise
        except (Exception, SystemExit) as failure:
            # The scheduler says that it failed, and why.
            logger.debug("where job %s failed", self.job, exc_info=True)
            error = f"{type(failure).__name__}: {failure}"
        finally:
            # It ends: an order that comes now must not cancel what ends it.
            self._task = None
            if self._tracking is not None:
                await self._tracking.close()
        self._send(DriverEnded(self.job, self._clock(), error, "" if error else self._why_over))

    async def _run_with_rollbacks(self, spec: JobSpec) -> bool:
        """Run to the end; returns False if the driver stepped aside before."""
        while True:
            committed_before = self._num_committed
            try:
                await asyncio.sleep(self._pause_s)
                position = await self._attach(spec)
                self._send(self._started(position))
                await self._iterate(spec, position)
                await until_stored(
                    states_of(self._store),
                    self._newest,
                    self._say,
                    check=partial(self._check_kept, spec),
                )
            except asyncio.CancelledError:
                if not self._may_go_on():
                    return False
            except Exception as failure:
                if self._num_committed > committed_before:
                    self._num_stalls = self._num_waits = 0
                # A cancellation that meets a failure is not raised.
                order = self._take_interruption()
                if order is None and self._task is not None and self._task.cancelling():
                    raise asyncio.CancelledError from failure
                if not self._may_try_again(failure) or order not in {None, Order.REPLAY}:
                    return False
            else:
                return True

    def _may_go_on(self) -> bool:
        """After a cancellation: do as it was ordered; returns False if the driver steps aside.

        Raises
        ------
        asyncio.CancelledError
            It ends the driver.
        """
        order = self._take_interruption()
        if order is None:
            if self._task is None or self._task.cancelling():
                raise asyncio.CancelledError
            # Something it awaits was cancelled, by nobody who would end the job.
            return self._may_try_again(CommClosedError(LOST))
        if order is Order.REPLAY:
            logger.info("job %s does its iteration again, as asked", self.job)
            self._attempt += 1
            self._pause_s = 0.0
        return order is Order.REPLAY

    def _may_try_again(self, failure: Exception) -> bool:
        """Prepare for going back to the last version; returns False if the driver steps aside.

        Raises
        ------
        Exception
            Going back does not help.
        """
        cause = _root(failure)
        if isinstance(cause, _SteppedAsideError):
            return False
        self._attempt += 1
        if isinstance(cause, StoreAwayError):
            # Without limit: the store comes back, or somebody cancels.
            self._num_waits += 1
            if self._num_waits == 1:
                logger.warning("job %s waits for the store: %s", self.job, cause)
            self._say(f"the store: {cause}")
            self._pause_s = min(RETRY_PAUSE_S * 2 ** min(self._num_waits, 8), MAX_STORE_PAUSE_S)
            return not self._is_leaving
        self._num_stalls += 1
        if not is_recoverable(cause) or self._num_stalls > MAX_ATTEMPTS_WITHOUT_PROGRESS:
            raise cause from failure
        logger.warning("job %s goes back to its last version: %s", self.job, cause)
        self._pause_s = RETRY_PAUSE_S * self._num_stalls
        return not self._is_leaving

    def _say(self, why: str) -> None:
        """Tell what the job waits for."""
        self._send(DriverWaits(self.job, why))

    def _take_interruption(self) -> Order | None:
        """The order that a cancellation carried, which is taken back; None: it ends the driver."""
        order, task = self._interruption, self._task
        if order is None or task is None or task.uncancel():
            return None
        self._interruption = None
        return order

    def _started(self, position: Position) -> DriverStarted:
        return DriverStarted(
            self.job,
            self._clock(),
            position.index,
            tuple(position.tokens.values()),
            position.earlier,
        )

    async def _attach(self, spec: JobSpec) -> Position:
        """Open the models on the job's group and find where to go on."""
        nodes = attach_nodes(spec, self.job, self._attempt, self._run)
        futures = self._client.compute(list(nodes.values()), optimize_graph=False)
        results: list[Attached] = [await future for future in futures]
        attached = dict(zip(nodes, results, strict=True))
        trainable = [attached[n] for n, model in spec.models.items() if model.is_trainable]
        first = min(trainable, key=lambda a: a.iteration)
        # Those of an interrupted driver may differ by the commit it was in the middle of.
        is_forking = spec.start is not None and all(a.is_new for a in trainable)
        if is_forking and len({a.iteration for a in trainable}) > 1:
            raise JobError(
                f"job {self.job!r} starts from {spec.start}, which is of different iterations for "
                f"its models {', '.join(attached)}; choose a version that all made in one iteration"
            )
        if spec.start is not None and first.is_new and first.iteration >= spec.iterations:
            raise JobError(
                f"job {self.job!r} shall run {spec.iterations} iterations, and starts from "
                f"{spec.start}, which has {first.iteration} behind it; raise iterations"
            )
        # Once they were opened, what the store has of the job is its own.
        is_strange = not (self._drive.is_resumed or self._is_attached or first.is_new)
        if first.iteration and is_strange:
            raise JobError(
                f"the store already holds job {self.job!r} up to iteration {first.iteration}; "
                "go on there with resume=True (plexrl resume STORE), or choose another name or "
                "store"
            )
        if first.is_new or not first.iteration:
            # Of a run under this name that committed nothing.
            await asyncio.to_thread(self._samples.forget, self.job)
            await asyncio.to_thread(self._log.forget, self.job)
        self._is_attached = True
        return Position(
            index=first.iteration,
            cursor=first.data_cursor,
            tokens={name: a.token for name, a in attached.items()},
            versions={name: a.token.version for name, a in attached.items()},
            earlier=await asyncio.to_thread(self._remembered, attached, first.iteration),
        )

    async def _check_kept(self, spec: JobSpec) -> None:
        """Raise if the last versions are gone with a group that had not written them.

        Raises
        ------
        VersionFenceError
            They are; the iterations that made them must be done again.
        """
        self._attempt += 1
        try:
            position = await self._attach(spec)
        except StoreAwayError:
            # It takes nothing, so that the group still has what it shall write.
            return
        if position.index < self._current:
            raise VersionFenceError(
                f"job {self.job!r} had done {self._current} iterations, of which those after "
                f"{position.index} went with their group before they were in the store; it does "
                "them again"
            )

    def _remembered(
        self, attached: Mapping[str, Attached], until: int
    ) -> tuple[IterationRecord, ...]:
        """Records of the iterations before `until`: logged, or told by the versions still there.

        A driver that dies between a commit and its line in the log leaves a gap there, which is
        closed here: versions go.
        """
        logged = dict(self._log.read(self.job))
        recent: dict[int, dict[str, Committed]] = {}
        for name, model in attached.items():
            for past in model.recent:
                recent.setdefault(past.iteration, {})[name] = past
        for index, pasts in recent.items():
            if index not in logged:
                ended_s = max(past.at_s for past in pasts.values())
                before = logged.get(index - 1)
                started_s = min(ended_s, before.ended_s) if before else ended_s
                metrics = _metrics({name: past.metrics for name, past in pasts.items()})
                logged[index] = IterationRecord(self.job, index, started_s, ended_s, metrics)
                if index < until:
                    self._log.append(logged[index])
        return tuple(logged[index] for index in sorted(logged) if index < until)

    @property
    def _run(self) -> str:
        return self._drive.run

    async def _iterate(self, spec: JobSpec, position: Position) -> None:
        """Submit iterations ahead of the one that runs, and commit them in order."""
        if self._is_leaving:
            raise _SteppedAsideError
        self._current = position.index
        queue: asyncio.Queue[InFlight | None] = asyncio.Queue(maxsize=max(AHEAD, spec.staleness))
        try:
            await run_together(
                self._commit_all(spec, queue), self._submit_all(spec, position, queue)
            )
        finally:
            # After a failure or a stop: what waits at the scheduler must not run any more.
            # Released, not cancelled: Dask's cancel fails where a dependent is wanted by nobody.
            for futures in self._held.values():
                _release(futures)
            self._held.clear()
            self._trained.clear()

    async def _submit_all(
        self, spec: JobSpec, position: Position, queue: asyncio.Queue[InFlight | None]
    ) -> None:
        evaluator = Evaluator(spec, self._client, self._samples, self._run, self._say)
        where = (position.index - 1, position.tokens, position.versions, self._attempt)
        is_over = await evaluator.is_over(*where)
        history = deque([(dict(position.tokens), dict(position.versions))], 1 + spec.staleness)
        while position.index < spec.iterations and not is_over:
            # Rollouts of iteration t use version max(0, t - staleness); after a resume, the
            # oldest version that is still there.
            stale_tokens, stale_versions = history[0]
            build = partial(
                build_iteration,
                spec,
                position.index,
                cursor=position.cursor,
                tokens=position.tokens,
                versions=position.versions,
                rollout_tokens=stale_tokens,
                rollout_versions=stale_versions,
                attempt=self._attempt,
                run=self._run,
            )
            iteration = await wait_asked(spec.prompts, spec.name, build, self._say)
            if self._is_leaving and position.index > self._current:
                return
            in_flight = await self._submit(spec, iteration)
            position.index += 1
            position.cursor = iteration.cursor_after
            for name, future in in_flight.trained.items():
                position.tokens[name] = future
                position.versions[name] += 1
            history.append((dict(position.tokens), dict(position.versions)))
            self._evaluate(evaluator, in_flight, position)
            await queue.put(in_flight)
            if in_flight.evaluation is not None:
                is_over = await evaluator.ends(iteration.index, in_flight.evaluation)
        self._why_over = evaluator.why_over
        await queue.put(None)

    def _evaluate(self, evaluator: Evaluator, in_flight: InFlight, position: Position) -> None:
        """Submit the evaluation that follows an iteration, if one is due."""
        future = evaluator.submit(
            in_flight.index, position.tokens, position.versions, self._attempt
        )
        if future is not None:
            in_flight.evaluation = future
            self._held[in_flight.index].append(future)

    async def _submit(self, spec: JobSpec, iteration: Iteration) -> InFlight:
        """Build an iteration's graph and hand it to the scheduler.

        A pipeline that asks for intermediate values gets them; whatever was computed for it is
        held, so that what follows finds it by its key.
        """
        run = PipelineRun(spec, iteration)
        held = self._held.setdefault(iteration.index, [])
        step = run.start()
        while isinstance(step, Compute):
            graph = step.node.__dask_graph__()
            held += self._client.compute(
                [Delayed(key, graph) for key in graph], optimize_graph=False
            )
            step = run.send(await self._client.compute(step.node, optimize_graph=False))
        trained = dict(iteration.trained)
        others = [
            node for node in step.outputs if node.key not in {n.key for n in trained.values()}
        ]
        num_trained, num_awaited = len(trained), len(trained) + len(others)
        # One graph, since each costs the scheduler several milliseconds.
        futures = self._client.compute(
            [*trained.values(), *others, *self._keepers(spec, iteration)], optimize_graph=False
        )
        held += futures
        return InFlight(
            iteration.index,
            dict(zip(trained, futures, strict=False)),
            futures[num_trained:num_awaited],
            futures[num_awaited:],
        )

    def _keepers(self, spec: JobSpec, iteration: Iteration) -> list[Delayed]:
        """Nodes that keep the samples of an iteration."""
        if not spec.keep_samples or (
            iteration.index % spec.keep_samples and not spec.may_end_after(iteration.index)
        ):
            return []
        nodes = []
        for model, batch in iteration.batches.items():
            node = delayed(sample_log.keep, pure=False)(
                self._samples,
                self.job,
                model,
                iteration.index,
                batch.samples,
                batch.advantages,
                batch.rewards,
                iteration.trained[model],
                dask_key_name=iteration.key(f"keep.{model}"),
            )
            # Inside dask.annotate, inputs whose layers Dask makes late would come last too.
            node.dask.layers[node.key].annotations = {"priority": KEEP_PRIORITY}
            nodes.append(node)
        return nodes

    def _track(self, record: IterationRecord) -> None:
        if self._tracking is not None:
            self._tracking.log(record)

    async def _commit_all(self, spec: JobSpec, queue: asyncio.Queue[InFlight | None]) -> None:
        started_s = self._clock()
        while (in_flight := await queue.get()) is not None:
            # One by one: a gather that fails leaves Dask's helper tasks to complain later.
            results: list[Trained] = [await future for future in in_flight.trained.values()]
            for future in in_flight.others:
                await future
            ended_s = self._clock()
            for future in in_flight.kept:
                await future
            metrics = _metrics(
                {
                    name: trained.metrics
                    for name, trained in zip(in_flight.trained, results, strict=True)
                }
            )
            if in_flight.evaluation is not None:
                metrics += tuple((await in_flight.evaluation).items())
            record = IterationRecord(self.job, in_flight.index, started_s, ended_s, metrics)
            self._newest = tuple(result.token for result in results)
            self._send(IterationCommitted(record, self._newest))
            self._track(record)
            self._num_committed += 1
            # Were they released, Dask would compute all iterations anew where it loses a result of
            # the next one.
            self._trained.append(in_flight.trained)
            if len(self._trained) > 1 + spec.staleness:
                self._trained.popleft()
            del self._held[in_flight.index]
            self._current, started_s = in_flight.index + 1, ended_s
            if self._is_leaving and in_flight.index + 1 < spec.iterations:
                raise _SteppedAsideError


def _release(futures: Iterable[Future]) -> None:
    for future in futures:
        future.release()


def is_recoverable(error: BaseException) -> bool:
    """Whether going back to the last committed version and trying again can help."""
    if isinstance(error, PlexRLError):
        return error.is_recoverable
    # KilledWorker is not among them: Dask has tried again already, three times.
    return isinstance(error, (FutureCancelledError, CommClosedError))


def _root(error: BaseException) -> BaseException:
    """First error inside groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


Metrics = tuple[tuple[str, float], ...]


def _metrics(results: Mapping[str, Metrics]) -> Metrics:
    """Metrics of all train functions; of more than one model they carry the model's name."""
    if len(results) == 1:
        return next(iter(results.values()))
    return tuple(
        (name if name == "reward_mean" else f"{model}/{name}", value)
        for model, metrics in results.items()
        for name, value in metrics
    )
