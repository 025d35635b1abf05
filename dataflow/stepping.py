"""Runs a pipeline function step by step, whoever computes the nodes.

A plain pipeline is done after one step. A generator pipeline hands out nodes whose values it
needs to go on; the driver computes each and sends the value in. The driver keeps what it
computed until the iteration has ended: later nodes may depend on earlier ones by key.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import networkx as nx
from dask.delayed import Delayed

from dataflow.errors import DataflowError, PipelineError
from dataflow.inspect import graph_of, require_acyclic
from dataflow.iteration import Iteration
from dataflow.jobs import JobSpec


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute this node and send its value to the pipeline."""

    node: Delayed


@dataclass(frozen=True, slots=True)
class Done:
    """The graph is complete; compute these nodes."""

    outputs: tuple[Delayed, ...]
    """Terminal nodes the pipeline returned, and nothing is left out: every train node of the
    iteration is among them or before one of them."""


Step = Compute | Done


class PipelineRun:
    """One pass of a job's pipeline over one iteration.

    Examples
    --------
    >>> step = run.start()                          # doctest: +SKIP
    >>> while isinstance(step, Compute):            # doctest: +SKIP
    ...     step = run.send(step.node.compute())
    """

    def __init__(self, job: JobSpec, iteration: Iteration) -> None:
        self._job = job
        self._iteration = iteration
        self._generator: Generator[object, object, object] | None = None
        self._num_steps = 0

    def start(self) -> Step:
        """Call the pipeline, up to the first value it needs or to its end.

        Raises
        ------
        PipelineError
            The pipeline raised, or what it built is no legal iteration.
        """
        if self._num_steps:
            raise PipelineError(f"the pipeline of job {self._job.name!r} was started twice")
        self._num_steps = 1
        try:
            built: object = self._job.pipeline(self._iteration)
        except DataflowError:
            raise
        except (Exception, SystemExit) as error:
            raise self._failure(error) from error
        if isinstance(built, Generator):
            self._generator = built
            return self._advance(None)
        return self._finish(built)

    def send(self, value: object) -> Step:
        """Give the pipeline the value of the node it asked for.

        Raises
        ------
        PipelineError
            The pipeline asked for nothing, raised, or built no legal iteration.
        """
        if self._generator is None:
            raise PipelineError(
                f"the pipeline of job {self._job.name!r} waits for no value; send answers a "
                "Compute step"
            )
        return self._advance(value)

    def close(self) -> None:
        """Give up: end a generator pipeline where it stands."""
        if self._generator is not None:
            self._generator.close()
            self._generator = None
        self._iteration.close()

    def _advance(self, value: object) -> Step:
        """Run the generator to its next node."""
        generator = cast("Generator[object, object, object]", self._generator)
        try:
            node = generator.send(value)
        except StopIteration as end:
            self._generator = None
            return self._finish(end.value)
        except DataflowError:
            raise
        except (Exception, SystemExit) as error:
            raise self._failure(error) from error
        self._num_steps += 1
        if self._num_steps > 1 + self._job.max_steps:
            generator.close()
            raise PipelineError(
                f"the pipeline of job {self._job.name!r} asked for {self._job.max_steps} values in "
                f"iteration {self._iteration.index} and has not trained yet; let it end, or raise "
                "max_steps of the job"
            )
        if not isinstance(node, Delayed):
            raise PipelineError(
                f"the pipeline of job {self._job.name!r} yielded {type(node).__name__}; yield a "
                "Dask node (dask.delayed, or what a model handle returned)"
            )
        require_acyclic(graph_of(node), self._job.name)
        return Compute(node)

    def _finish(self, built: object) -> Done:
        """Check the complete graph."""
        self._iteration.close()
        outputs = _terminals(self._job.name, built)
        graph = graph_of(outputs)
        require_acyclic(graph, self._job.name)
        self._require_training(graph)
        return Done(outputs)

    def _require_training(self, graph: nx.DiGraph[str]) -> None:
        """Raise unless the iteration trains something and returns all that it trains."""
        trained = self._iteration.trained
        if not trained:
            raise PipelineError(
                f"the pipeline of job {self._job.name!r} trains nothing; call train on a "
                "trainable model (it.actor.train(samples, advantages)) and return its node"
            )
        for model, node in trained.items():
            if str(node.key) not in graph:
                raise PipelineError(
                    f"the pipeline of job {self._job.name!r} trains {model!r} but returns nothing "
                    "that depends on it, so it would never run; return the train node"
                )

    def _failure(self, error: BaseException) -> PipelineError:
        """The error of a user's function, with its name and place."""
        name = getattr(self._job.pipeline, "__qualname__", type(self._job.pipeline).__name__)
        return PipelineError(
            f"the pipeline {name} of job {self._job.name!r} raised {type(error).__name__} while "
            f"building iteration {self._iteration.index}: {error}"
        )


def _terminals(job: str, built: object) -> tuple[Delayed, ...]:
    """Nodes that a pipeline returned, in a tuple."""
    if isinstance(built, Delayed):
        return (built,)
    items: Iterable[object] = ()
    if isinstance(built, Mapping):
        items = built.values()
    elif isinstance(built, (tuple, list)):
        items = built
    outputs = tuple(items)
    nodes = tuple(item for item in outputs if isinstance(item, Delayed))
    if not nodes or len(nodes) != len(outputs):
        wrong = next((item for item in outputs if not isinstance(item, Delayed)), built)
        raise PipelineError(
            f"the pipeline of job {job!r} returned {type(wrong).__name__} where a Dask node is "
            "expected; return the train node, or a tuple or dict of nodes"
        )
    return nodes
