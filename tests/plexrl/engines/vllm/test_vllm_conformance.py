"""What any engine must do when it samples; here to within rounding."""

from dataclasses import replace

import pytest
import torch

from dataflow.calls import GenerateOptions
from dataflow.samples import EndReason, Prompt
from plexrl.core.layout import ROLE_WEIGHTS
from plexrl.engines.protocol import DrawKey
from plexrl.engines.truncation import truncate
from tests.plexrl.engines.conformance import (  # noqa: F401
    KEY,
    LETTERS,
    OPTIONS,
    PROMPTS,
    by_name,
    test_a_cancelled_sample_ends_with_a_token_and_the_others_go_on,
    test_a_generation_interrupted_after_each_token_gives_the_samples_of_a_whole_one,
    test_a_prompt_longer_than_the_context_is_refused,
    test_a_sample_cancelled_between_turns_has_no_further_one,
    test_a_stop_text_ends_the_turn_and_stays_in_the_sample,
    test_a_turn_goes_on_after_what_the_environment_said,
    test_an_arena_that_is_too_small_is_refused,
    test_an_empty_prompt_is_refused,
    test_another_key_draws_other_tokens,
    test_other_weights_and_generations_in_between_change_nothing,
    test_prompts_give_their_samples_in_order,
    test_the_context_ends_a_completion,
    test_what_was_discarded_is_drawn_again_to_the_same_tokens,
)


def test_the_layout_is_the_weights_part_of_the_torch_engine(rig):
    slots = rig.engine.layout().slots
    assert slots == rig.torch.layout().role(ROLE_WEIGHTS)
    assert rig.torch.layout().slots[: len(slots)] == slots


def test_a_sample_depends_neither_on_order_nor_on_batch_mates(rig):
    rig.reset()
    together = by_name(rig.engine.generate(PROMPTS, OPTIONS, KEY))
    backwards = by_name(rig.engine.generate(PROMPTS[::-1], OPTIONS, KEY))
    assert rig.same([backwards[name] for name in together], list(together.values()))
    for prompt in PROMPTS:
        alone = rig.engine.generate([prompt], replace(OPTIONS, num_samples=1), KEY)
        assert rig.same(alone, [together[prompt.index, 0]])


def test_a_smaller_token_limit_cuts_and_changes_nothing_before(rig):
    rig.reset()
    long = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    short = rig.engine.generate(PROMPTS, replace(OPTIONS, max_new_tokens=2), KEY)
    assert [s.token_ids for s in short] == [s.token_ids[:2] for s in long]


def test_more_prompts_than_one_step_reads_draw_what_each_draws_alone(rig):
    rig.reset()
    # Of more tokens together than vLLM computes in one step on a CPU, 4,096.
    prompts = [Prompt(i, f"{i:03}" + "1234567890" * 12) for i in range(40)]
    options = GenerateOptions(num_samples=2, max_new_tokens=4)
    together = rig.engine.generate(prompts, options, KEY)
    alone = [s for prompt in prompts[30:] for s in rig.engine.generate([prompt], options, KEY)]
    assert rig.same(together[60:], alone)


def test_greedy_samples_are_those_of_the_torch_engine(rig):
    rig.reset()
    greedy = replace(OPTIONS, temperature=0.0, max_new_tokens=12)
    samples = rig.engine.generate(PROMPTS, greedy, KEY)
    assert rig.same(samples, rig.torch.generate(PROMPTS, greedy, KEY))
    assert rig.same(rig.engine.generate(PROMPTS, greedy, DrawKey(0, 0)), samples)


def test_a_tool_turn_does_not_depend_on_order(rig):
    rig.reset()
    first = rig.engine.generate(PROMPTS, replace(OPTIONS, stop=LETTERS), KEY)
    answered = tuple(replace(s, pending_text="1|") if s.is_active else s for s in first)
    together = by_name(rig.engine.generate(answered, OPTIONS, KEY))
    backwards = by_name(rig.engine.generate(answered[::-1], OPTIONS, KEY))
    assert rig.same([backwards[name] for name in together], list(together.values()))


def test_truncated_samples_have_the_logprobs_of_the_distribution_drawn_from(rig):
    rig.reset()
    options = replace(OPTIONS, temperature=0.7, top_k=6, top_p=0.8)
    for sample in rig.engine.generate(PROMPTS, options, KEY):
        context = list(sample.prompt_token_ids)
        for token, logprob in zip(sample.token_ids, sample.logprobs, strict=True):
            logits_1V = rig.torch._network.model(torch.tensor([context])).logits[:, -1] / 0.7
            expected_V = truncate(logits_1V, 6, 0.8).log_softmax(-1)[0]
            assert logprob == pytest.approx(float(expected_V[token]), abs=1e-4)
            context.append(token)


def test_a_stop_text_of_several_characters_ends_a_turn(rig):
    rig.reset()
    (sample, *_) = rig.engine.generate(PROMPTS, replace(OPTIONS, max_new_tokens=24), KEY)
    stop = sample.text[3:6]
    (stopped, *_) = rig.engine.generate(
        PROMPTS, replace(OPTIONS, max_new_tokens=24, stop=(stop,)), KEY
    )
    assert stopped.end is EndReason.TOOL_CALL
    assert stopped.text == sample.text[: sample.text.index(stop) + 3]
    assert stopped.token_ids == sample.token_ids[: len(stopped.token_ids)]
    assert stopped.turn == 1


def test_the_end_token_stops_and_stays_in_the_sample(rig):
    rig.reset()
    samples = rig.engine.generate(PROMPTS, GenerateOptions(64, 12), KEY)
    ended = [s for s in samples if s.end is EndReason.STOP]
    eos = {s.token_ids[-1] for s in ended}
    assert len(eos) == 1
    for sample in samples:
        assert (sample.token_ids[-1] in eos) == (sample.end is EndReason.STOP)
        assert not eos & set(sample.token_ids[:-1])


def test_draws_follow_the_distribution(rig):
    import torch

    rig.reset()
    samples = rig.engine.generate(PROMPTS[:1], GenerateOptions(2000, 1), KEY)
    logits = rig.torch._network.model(torch.tensor([samples[0].prompt_token_ids])).logits[0, -1]
    expected = logits.softmax(-1)
    counts = torch.bincount(torch.tensor([s.token_ids[0] for s in samples]), minlength=99)
    chi_square = ((counts - 2000 * expected) ** 2 / (2000 * expected)).sum()
    # 98 degrees of freedom: mean 98, deviation 14.
    assert 40 < chi_square.item() < 160
