"""From prompts and earlier samples to what an engine decodes, and back to samples.

The same for every engine: an engine differs only in how it draws the tokens of a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dataflow.calls import GenerateOptions
from dataflow.keys import draw_key
from dataflow.samples import EndReason, Prompt, Sample, SampleId
from plexrl.engines.protocol import Break, DrawKey, Interrupted
from plexrl.engines.text_codec import TextCodec
from plexrl.errors import EngineError

UNBROKEN = Break("", lambda: False)
"""Of a generation that runs to its end."""


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """One completion to draw."""

    context: tuple[int, ...]
    """All tokens so far."""
    draw_key: int
    """128-bit key of the row's own stream of uniforms (`dataflow.keys.draw_key`)."""
    sample: SampleId
    """Sample it belongs to."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn for a row."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-probability of each token (nats) under the distribution it was drawn from, after
    temperature, top-k and top-p: what a correction by importance weights needs. At temperature 0
    under the model's own."""
    end: EndReason


Draw = Callable[[Sequence[DecodeRow], GenerateOptions, Break], "Sequence[Drawn | None]"]
"""Draws one turn of each row; results in the order of the rows, None for those it had no time for.
Every context leaves room for at least one token."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """What every turn of a rollout needs."""

    codec: TextCodec
    context_limit: int
    """Most tokens of prompt and completion together."""
    draw: Draw


def run_turn(
    rollout: Rollout,
    inputs: Sequence[Prompt] | Sequence[Sample],
    options: GenerateOptions,
    key: DrawKey,
) -> tuple[Sample, ...]:
    """Draw one turn of every active sample; see `plexrl.engines.protocol.Engine.generate`.

    Raises
    ------
    EngineError
        A prompt has no token or does not fit the context, an option is out of range, or the
        network answered with NaN.
    """
    samples = run_turn_until(rollout, UNBROKEN, inputs, options, key)
    assert not isinstance(samples, Interrupted)
    return samples


def run_turn_until(
    rollout: Rollout,
    stop: Break,
    inputs: Sequence[Prompt] | Sequence[Sample] | Interrupted,
    options: GenerateOptions,
    key: DrawKey,
) -> tuple[Sample, ...] | Interrupted:
    """As `run_turn`, and stop when asked to; see `plexrl.engines.protocol.Engine`.

    Raises
    ------
    EngineError
        As for `run_turn`.
    """
    _check_options(options)
    if isinstance(inputs, Interrupted):
        samples, rows = list(inputs.samples), list(inputs.rows)
        stop = replace(stop, resumes=inputs.name)
    else:
        samples = list(_as_samples(rollout, inputs, options.num_samples))
        rows = _rows_to_draw(rollout, samples, stop.cancelled())
    drawn = (
        rollout.draw([_decode_row(samples[row], key) for row in rows], options, stop)
        if rows
        else ()
    )
    sums = [sum(turn.logprobs) for turn in drawn if turn is not None]
    if not np.isfinite(sums).all():
        raise EngineError(
            "the network answers with NaN or infinite logits during a rollout: the loaded weights "
            "are broken; lower the learning rate and go back to an earlier version"
        )
    for row, turn in zip(rows, drawn, strict=True):
        if turn is not None:
            samples[row] = _extend(rollout.codec, samples[row], turn)
    left = tuple(row for row, turn in zip(rows, drawn, strict=True) if turn is None)
    return Interrupted(stop.name, tuple(samples), left) if left else tuple(samples)


def _rows_to_draw(
    rollout: Rollout, samples: list[Sample], cancelled: frozenset[SampleId]
) -> list[int]:
    """Rows of active samples; one whose context is full, or that was cancelled, ends here."""
    rows: list[int] = []
    for row, sample in enumerate(samples):
        if not sample.is_active:
            continue
        # Of one that was cancelled before its first turn there must be a token to train on.
        if sample.turn and sample.id in cancelled:
            samples[row] = replace(sample, end=EndReason.CANCELLED, is_active=False)
        elif len(sample.prompt_token_ids) + len(sample.token_ids) >= rollout.context_limit:
            samples[row] = replace(sample, end=EndReason.LENGTH, is_active=False)
        else:
            rows.append(row)
    return rows


def _as_samples(
    rollout: Rollout, inputs: Sequence[Prompt] | Sequence[Sample], num_samples: int
) -> Iterable[Sample]:
    for item in inputs:
        if isinstance(item, Prompt):
            token_ids = _encode_prompt(rollout, item)
            for index in range(num_samples):
                yield Sample(item, index, token_ids)
        else:
            yield _with_pending(rollout, item) if item.is_active else item


def _encode_prompt(rollout: Rollout, prompt: Prompt) -> tuple[int, ...]:
    token_ids = rollout.codec.encode(prompt.text, is_start=True)
    if not token_ids:
        raise EngineError(
            f"prompt {prompt.index} ({prompt.text!r}) has no token; give every prompt some text"
        )
    if len(token_ids) >= rollout.context_limit:
        raise EngineError(
            f"prompt {prompt.index} has {len(token_ids)} tokens, the model's context holds "
            f"{rollout.context_limit} with the completion; shorten the prompt"
        )
    return token_ids


def _with_pending(rollout: Rollout, sample: Sample) -> Sample:
    """Append what the environment said; text beyond the context ends the sample instead."""
    if not sample.pending_text:
        return sample
    added = rollout.codec.encode(sample.pending_text, is_start=False)
    length = len(sample.prompt_token_ids) + len(sample.token_ids) + len(added)
    if length >= rollout.context_limit:
        return replace(sample, pending_text="", end=EndReason.LENGTH, is_active=False)
    token_ids = sample.token_ids + added
    return replace(
        sample,
        token_ids=token_ids,
        policy_mask=sample.policy_mask + (False,) * len(added),
        logprobs=sample.logprobs + (0.0,) * len(added),
        text=rollout.codec.decode(token_ids),
        pending_text="",
    )


def _decode_row(sample: Sample, key: DrawKey) -> DecodeRow:
    stream = draw_key(
        key.seed, key.iteration, sample.prompt.index, sample.sample_index, sample.turn
    )
    return DecodeRow(sample.prompt_token_ids + sample.token_ids, stream, sample.id)


def _extend(codec: TextCodec, sample: Sample, drawn: Drawn) -> Sample:
    token_ids = sample.token_ids + drawn.token_ids
    return replace(
        sample,
        token_ids=token_ids,
        policy_mask=sample.policy_mask + (True,) * len(drawn.token_ids),
        logprobs=sample.logprobs + drawn.logprobs,
        text=codec.decode(token_ids),
        turn=sample.turn + 1,
        end=drawn.end,
        is_active=drawn.end is EndReason.TOOL_CALL,
    )


def _check_options(options: GenerateOptions) -> None:
    if options.num_samples < 1 or options.max_new_tokens < 1 or not options.temperature >= 0:
        raise EngineError(
            f"cannot generate with {options}: num_samples and max_new_tokens must be at least 1, "
            "temperature at least 0"
        )
    if not (0 < options.top_p <= 1 and options.top_k >= 0):
        raise EngineError(
            f"cannot generate with top_p={options.top_p} and top_k={options.top_k}; give a share "
            "above 0 and at most 1, and a count of at least 0"
        )
    if not all(options.stop):
        raise EngineError("a stop text is empty; give texts of at least one character")
