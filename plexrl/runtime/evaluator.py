"""Evaluates a job on held-out prompts while it runs, and says when its scores end it."""

from __future__ import annotations

import asyncio
import logging
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dask.delayed import Delayed, delayed
from distributed import Client, Future

from dataflow.evaluating import at_hand, evaluation_nodes
from dataflow.jobs import JobSpec
from dataflow.samples import EndReason, Rewards, Sample, table
from plexrl.runtime.sample_log import EVALUATION, Row, SampleLog, write_or_warn
from plexrl.runtime.sources import wait_asked

logger = logging.getLogger("plexrl.driver")


class Evaluator:
    """The evaluations of one job.

    The iteration that follows begins once an evaluation is done: the version it is about stays
    where it is, and a job that ends early ends with exactly that version.

    Parameters
    ----------
    spec
        The job.
    client
        Asynchronous client in the worker the driver lives in.
    samples
        Where the samples of evaluations are kept; scores of earlier lives are read from there.
    run
        Tells runs of one job name apart in node keys.
    say
        Told what is waited for, if its prompts take long.

    Attributes
    ----------
    why_over : str
        Why the job ends before its last iteration; empty unless it does.
    """

    def __init__(
        self,
        spec: JobSpec,
        client: Client,
        samples: SampleLog,
        run: str,
        say: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._evaluation = spec.evaluation
        self._client = client
        self._samples = samples
        self._run = run
        self._say = say
        self._scores: dict[int, float] = {}
        self.why_over = ""

    async def is_over(
        self, index: int, tokens: Mapping[str, object], versions: Mapping[str, int], attempt: int
    ) -> bool:
        """Whether the scores until here end a job that goes on after the iteration `index`.

        An evaluation that was due then, and that a driver before this one did not live to see,
        is made up for.
        """
        evaluation = self._evaluation
        if evaluation is None:
            return False
        self._evaluation = await wait_asked(
            evaluation.prompts,
            self._spec.name,
            partial(at_hand, self._spec, evaluation),
            self._say,
        )
        self._scores = await asyncio.to_thread(_scores_until, self._samples, self._spec.name, index)
        if index not in self._scores:
            future = self.submit(index, tokens, versions, attempt)
            if future is not None:
                return await self.ends(index, future)
        return self._is_enough()

    def submit(
        self, index: int, tokens: Mapping[str, object], versions: Mapping[str, int], attempt: int
    ) -> Future | None:
        """Evaluate what an iteration trained, if it is due: a future of metrics."""
        evaluation = self._evaluation
        if evaluation is None or not evaluation.is_due(index, self._spec.iterations):
            return None
        nodes = evaluation_nodes(
            self._spec,
            evaluation,
            index,
            tokens=tokens,
            versions=versions,
            attempt=attempt,
            run=self._run,
        )
        node = self._measure_node(index, attempt, *nodes)
        future: Future = self._client.compute(node, optimize_graph=False)
        return future

    async def ends(self, index: int, future: Future) -> bool:
        """Wait for an evaluation; whether its score ends the job."""
        metrics = await future
        self._scores[index] = metrics[SCORE]
        return self._is_enough()

    def _measure_node(
        self, index: int, attempt: int, samples: Delayed, rewards: Delayed
    ) -> Delayed:
        key = f"evaluation-i{index:05d}.a{attempt}.{self._spec.name}.{self._run}"
        node: Delayed = delayed(measure, pure=False)(
            self._samples, self._spec.name, index, samples, rewards, dask_key_name=key
        )
        return node

    def _is_enough(self) -> bool:
        assert self._evaluation is not None
        scores = [self._scores[i] for i in sorted(self._scores)]
        self.why_over = self._evaluation.why_stop(scores)
        if self.why_over:
            logger.info("job %s ends early: %s", self._spec.name, self.why_over)
        return bool(self.why_over)


SCORE = "evaluation/reward_mean"
"""Metric that early stopping looks at."""


def measure(
    log: SampleLog, job: str, iteration: int, samples: Sequence[Sample], rewards: Rewards
) -> dict[str, float]:
    """Body of the node that ends an evaluation: keeps the samples, returns metrics."""
    rows = table(samples, rewards)
    write_or_warn(log, job, EVALUATION, iteration, rows)
    is_cut = [sample.end is EndReason.LENGTH for sample in samples]
    return {SCORE: score_of(rows), "evaluation/truncated": statistics.fmean(is_cut)}


def score_of(rows: Sequence[Row]) -> float:
    """Mean reward of the samples of an evaluation."""
    return statistics.fmean(row["reward"] for row in rows)  # type: ignore[misc]


def _scores_until(samples: SampleLog, job: str, index: int) -> dict[int, float]:
    """Iteration → score of the evaluations up to an iteration."""
    known = [i for i in samples.iterations(job, EVALUATION) if i <= index]
    return {i: score_of(samples.read(job, i, EVALUATION)) for i in known}
