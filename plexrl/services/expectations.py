"""Which functions are followed at once by training on what was drawn, as far as was seen."""

from __future__ import annotations

from dataflow.calls import LLMCall, TrainOptions
from plexrl.engines.forward import Forward, first_forward

Op = tuple[str, str]
"""(job, op)."""
Model = tuple[str, str]
"""(job, model)."""


class Expectations:
    """What is likely to follow the functions of each job; used under the lease of the group.

    Training is expected after an op whose samples the last train function of its model took as
    they were, with nothing run on the group between the two but functions that scored these
    samples: then after the last of those. Where jobs take turns, something else mostly is.
    """

    def __init__(self) -> None:
        self._before: Op | None = None
        self._now: Op | None = None
        self._drawn: object = None
        """What the last rollout drew."""
        self._drawer: Op | None = None
        """That rollout."""
        self._scorer: Op | None = None
        """The function that scored it last, with nothing else between; at first the rollout."""
        self._expected: dict[Model, tuple[Op, Forward]] = {}
        """Trained model → after which op, and how it begins."""

    def begin(self, call: LLMCall) -> None:
        """A function begins."""
        self._before, self._now = self._now, (call.job, call.op)

    def after(self, call: LLMCall) -> Forward | None:
        """The forward pass that is likely to follow this function."""
        found = ((op, f) for (job, _), (op, f) in self._expected.items() if job == call.job)
        return next((forward for (_, op), forward in found if op == call.op), None)

    def note_drawn(self, samples: object) -> None:
        """The rollout that runs has drawn these."""
        self._drawn, self._drawer, self._scorer = samples, self._now, self._now

    def note_scored(self, samples: object) -> bool:
        """The function that runs has scored these; whether they are the ones just drawn."""
        is_next = samples is self._drawn and self._before == self._scorer
        if is_next:
            self._scorer = self._now
        return is_next

    def note_trained(self, call: LLMCall, samples: object, options: TrainOptions) -> None:
        """The function that runs trains a model on these samples."""
        forward, drawer, scorer = first_forward(options), self._drawer, self._scorer
        is_next = samples is self._drawn and scorer == self._before
        model = call.job, call.model
        self._drawn = None
        self._expected.pop(model, None)
        if forward is None or drawer is None or scorer is None or not is_next:
            return
        if _drawn_by(drawer) == model:
            self._expected[model] = scorer, forward

    def forget(self, job: str) -> None:
        """A job ended."""
        self._drawn = None
        for key in [key for key in self._expected if key[0] == job]:
            del self._expected[key]


def _drawn_by(op: Op) -> Model:
    job, name = op
    return job, name.partition(".")[0]
