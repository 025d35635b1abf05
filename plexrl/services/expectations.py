"""Which rollouts are followed at once by training on just what they drew, as far as was seen."""

from __future__ import annotations

from dataflow.calls import LLMCall, TrainOptions
from plexrl.engines.forward import Forward, first_forward

Op = tuple[str, str]
"""(job, op)."""


class Expectations:
    """What is likely to follow the rollouts of each job; used under the lease of the group.

    Training is expected after an op whose samples the last train function of its model took as
    they were, with nothing run on the group between the two. Where jobs take turns, something
    mostly is.
    """

    def __init__(self) -> None:
        self._before: Op | None = None
        self._now: Op | None = None
        self._drawn: object = None
        """What the last rollout drew."""
        self._expected: dict[Op, Forward] = {}

    def begin(self, call: LLMCall) -> None:
        """A function begins."""
        self._before, self._now = self._now, (call.job, call.op)

    def after(self, call: LLMCall) -> Forward | None:
        """The forward pass that is likely to follow this rollout."""
        return self._expected.get((call.job, call.op))

    def note_drawn(self, samples: object) -> None:
        """The rollout that runs has drawn these."""
        self._drawn = samples

    def note_trained(self, call: LLMCall, samples: object, options: TrainOptions) -> None:
        """The function that runs trains a model on these samples."""
        forward, drawn = first_forward(options), self._drawn
        for job, op in list(self._expected):
            if job == call.job and _model_of(op) == call.model:
                del self._expected[job, op]
        self._drawn = None
        if self._before is None or drawn is not samples or forward is None:
            return
        job, op = self._before
        if job == call.job and _model_of(op) == call.model:
            self._expected[job, op] = forward

    def forget(self, job: str) -> None:
        """A job ended."""
        self._drawn = None
        for key in [key for key in self._expected if key[0] == job]:
            del self._expected[key]


def _model_of(op: str) -> str:
    return op.partition(".")[0]
