"""From prompts and earlier samples to rows that can be decoded, and back to samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from transformers import PreTrainedModel

from dataflow.calls import GenerateOptions
from dataflow.keys import draw_key
from dataflow.samples import EndReason, Prompt, Sample
from plexrl.engines.decoding import DecodeBatch, DecodeRow, DecodeRules, Drawn
from plexrl.engines.kv_cache import rows_that_fit
from plexrl.engines.protocol import DrawKey
from plexrl.engines.text_codec import TextCodec
from plexrl.errors import EngineError


@dataclass(frozen=True, slots=True)
class Rollout:
    """What every turn of a rollout needs."""

    model: PreTrainedModel
    codec: TextCodec
    context_limit: int
    """Most tokens of prompt and completion together."""


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
    _check_options(options)
    samples = list(_as_samples(rollout, inputs, options.num_samples))
    by_length: dict[int, list[int]] = {}
    for row, sample in enumerate(samples):
        if not sample.is_active:
            continue
        context_length = len(sample.prompt_token_ids) + len(sample.token_ids)
        if context_length >= rollout.context_limit:
            samples[row] = replace(sample, end=EndReason.LENGTH, is_active=False)
        else:
            by_length.setdefault(context_length, []).append(row)
    for length, rows in sorted(by_length.items()):
        room = rollout.context_limit - length
        rules = _rules(rollout.codec, options, min(options.max_new_tokens, room))
        step = rows_that_fit(rollout.model.config, length + rules.max_new_tokens)
        for start in range(0, len(rows), step):
            batch = rows[start : start + step]
            decode_rows = [_decode_row(samples[row], key) for row in batch]
            for row, drawn in zip(batch, _decode(rollout, decode_rows, rules), strict=True):
                samples[row] = _extend(rollout.codec, samples[row], drawn)
    return tuple(samples)


@torch.inference_mode()
def _decode(rollout: Rollout, rows: Sequence[DecodeRow], rules: DecodeRules) -> list[Drawn]:
    drawn = DecodeBatch(rollout.model, rows, rules).run()
    if not np.isfinite([sum(row.logprobs) for row in drawn]).all():
        raise EngineError(
            "the network answers with NaN or infinite logits during a rollout: the loaded weights "
            "are broken; lower the learning rate and go back to an earlier version"
        )
    return drawn


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
    return DecodeRow(sample.prompt_token_ids + sample.token_ids, stream)


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


def _rules(codec: TextCodec, options: GenerateOptions, max_new_tokens: int) -> DecodeRules:
    if not options.stop:
        return DecodeRules(max_new_tokens, options.temperature, codec.is_eos)

    def has_stop(token_ids: Sequence[int]) -> bool:
        text = codec.decode(token_ids)
        return any(stop in text for stop in options.stop)

    return DecodeRules(
        max_new_tokens, options.temperature, codec.is_eos, codec.may_end(options.stop), has_stop
    )


def _check_options(options: GenerateOptions) -> None:
    if options.num_samples < 1 or options.max_new_tokens < 1 or not options.temperature >= 0:
        raise EngineError(
            f"cannot generate with {options}: num_samples and max_new_tokens must be at least 1, "
            "temperature at least 0"
        )
    if not all(options.stop):
        raise EngineError("a stop text is empty; give texts of at least one character")
