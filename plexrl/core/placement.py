"""On which groups the functions of a job run: one is its home, others may sample for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dataflow.phases import Phase
from plexrl.errors import JobError


class Arrangement(StrEnum):
    """Where the phases of a job may run; `dataflow.jobs.ARRANGEMENTS` for users."""

    ANY = "any"
    """The planner decides."""
    COLOCATED = "colocated"
    """All on one group."""
    SPLIT = "split"
    """Rollouts on another group than the rest; both may be shared."""
    ASYNCHRONOUS = "asynchronous"
    """Split, and rollouts run ahead by the job's staleness."""
    PRIVATE_ROLLOUT = "private_rollout"
    """Rollouts on a group of the job's own, the rest on a group that may be shared."""

    @property
    def is_split(self) -> bool:
        """Whether rollouts have another group than the rest."""
        return self in {self.SPLIT, self.ASYNCHRONOUS, self.PRIVATE_ROLLOUT}


@dataclass(frozen=True, slots=True)
class Placement:
    """Phase → group, for one job.

    Every version of its models is made at home, the only group that commits and stores them;
    other groups take copies of the weights they compute with.
    """

    home: str
    """Group where its models are opened and trained."""
    elsewhere: tuple[tuple[str, str], ...] = ()
    """``(phase, group)`` or ``("<model>.<phase>", group)`` of what does not run at home."""

    @classmethod
    def of(cls, home: str, elsewhere: Mapping[str, str] | None = None) -> Placement:
        """A placement; entries that name the home are left out."""
        pins = {key: group for key, group in (elsewhere or {}).items() if group != home}
        return cls(home, tuple(sorted(pins.items())))

    @classmethod
    def of_models(cls, home: str, places: Mapping[tuple[str, str], str]) -> Placement:
        """A placement by ``(model, phase)``; a phase is named alone if all its models agree."""
        by_phase: dict[str, set[str]] = {}
        for (_, phase), group in places.items():
            by_phase.setdefault(phase, set()).add(group)
        return cls.of(
            home,
            {
                phase if len(by_phase[phase]) == 1 else f"{model}.{phase}": group
                for (model, phase), group in places.items()
            },
        )

    def __str__(self) -> str:
        return "+".join(self.groups)

    @property
    def groups(self) -> tuple[str, ...]:
        """Its groups, the home first."""
        return tuple(dict.fromkeys([self.home, *(group for _, group in self.elsewhere)]))

    @property
    def guests(self) -> tuple[str, ...]:
        """Groups that compute with copies."""
        return self.groups[1:]

    def group(self, model: str, phase: str) -> str:
        """Group where this function of the model runs; it is evaluated where it samples."""
        pins = dict(self.elsewhere)
        if phase == Phase.EVALUATE:
            phase = Phase.ROLLOUT
        return pins.get(f"{model}.{phase}") or pins.get(phase) or self.home

    def group_of_op(self, op: str) -> str:
        """Group of an op by its name, e.g. ``actor.rollout.0``."""
        return self.group(*model_and_phase(op))

    def lease_groups(self, op: str, *, is_setup: bool) -> tuple[str, ...]:
        """Groups that an op holds at once, the one it runs on first.

        Parameters
        ----------
        is_setup
            Whether it opens or exports a model, outside any iteration: that happens at home.
        """
        model, phase = model_and_phase(op)
        if is_setup:
            return (self.home,)
        if phase == Phase.SYNC:
            return tuple(dict.fromkeys([self.group(model, Phase.ROLLOUT), self.home]))
        return (self.group(model, phase),)


def model_and_phase(op: str) -> tuple[str, str]:
    """Model and phase of an op by its name, e.g. ``actor.rollout.0``."""
    model, _, rest = op.partition(".")
    return model, rest.partition(".")[0]


PINNABLE = (Phase.ROLLOUT, Phase.LOGPROB)
"""Phases that may run elsewhere than at home."""


def check_pins(job: str, pins: Mapping[str, str], models: Mapping[str, object]) -> None:
    """Check what a user fixed: phase, or model and phase, → group.

    Raises
    ------
    JobError
        A key is no phase that can be placed, or names no model.
    """
    for key in pins:
        model, _, phase = key.rpartition(".")
        is_train = key == Phase.TRAIN
        is_known = phase in PINNABLE and (not model or model in models)
        if not (is_train or is_known):
            raise JobError(
                f"job {job!r} places {key!r} on {pins[key]!r}; name 'train' (all models are "
                "trained on one group), 'rollout', 'logprob', or a model and one of the latter "
                f"two, such as 'actor.rollout' (models: {', '.join(models)})"
            )
