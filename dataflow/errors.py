"""Errors of the graph vocabulary, grouped by what the caller does about them.

::

    DataflowError
    ├── PipelineError        the pipeline is wrong: change the pipeline
    │   └── CycleError       the graph of an iteration has a cycle
    ├── UnknownNameError     a task, reward, advantage or loss name nobody registered
    ├── DataError            a data set or a value in it is unusable
    ├── RewardError          a reward function raised, or returned the wrong shape or NaN
    ├── ToolError            the process of a tool cannot be started at all
    ├── NotReadyError        a child process ended before it could take a request
    ├── MissingExtraError    an optional library is not installed
    └── NoServiceError       an LLM node ran where no LLM service is behind it
"""

from __future__ import annotations


class DataflowError(Exception):
    """Root of the tree; every message names the object, the value and the remedy."""

    kind = "dataflow"


class PipelineError(DataflowError):
    """The pipeline of a job does not describe a legal iteration."""

    kind = "pipeline"


class CycleError(PipelineError):
    """The graph of an iteration is not acyclic; the message names the nodes of one cycle."""

    kind = "cycle"


class UnknownNameError(DataflowError):
    """A name that nobody registered; the message lists the known ones."""

    kind = "unknown_name"


class DataError(DataflowError):
    """A data set is empty, or an item in it cannot be used."""

    kind = "data"


class RewardError(DataflowError):
    """A reward function raised, or returned NaN or the wrong number of values."""

    kind = "reward"


class NotReadyError(DataflowError):
    """A child process cannot be started, or ended before it said that it is ready."""

    kind = "not_ready"


class ToolError(DataflowError):
    """The process that should run tool calls cannot be started on this worker."""

    kind = "tool"


class MissingExtraError(DataflowError):
    """Something needs an optional library; the message has the command that installs it."""

    kind = "missing_extra"


class NoServiceError(DataflowError):
    """An LLM node was executed by a scheduler without an LLM service behind it."""

    kind = "no_service"
