"""What tells the forward passes of training apart; free of torch, since parents speak of it too."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.calls import TrainOptions


@dataclass(frozen=True, slots=True)
class Forward:
    """What the forward pass of training depends on, beside rows and weights."""

    temperature: float
    has_entropy_grad: bool
    is_half: bool
    """Whether matrix products are in half precision."""


def forward_of(options: TrainOptions) -> Forward:
    """The forward passes of a train function."""
    return Forward(options.temperature, options.entropy_coef != 0, options.autocast is not None)


def first_forward(options: TrainOptions) -> Forward | None:
    """What training begins with; None unless that is one forward pass of all its samples."""
    is_whole = options.num_epochs * options.num_minibatches == 1
    if not is_whole or options.micro_batch_size is not None or options.is_checkpointed:
        return None
    return forward_of(options)
