"""A generation that stops between two tokens and goes on, while others use the engine."""

from dataclasses import replace

import pytest

from dataflow.calls import GenerateOptions
from dataflow.samples import Prompt
from plexrl.engines.protocol import Interrupted
from plexrl.engines.vllm_settings import MAX_ROWS
from tests.plexrl.engines.conformance import KEY, OPTIONS, PROMPTS, go_on


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_rollout_goes_on_as_if_it_had_not_stopped(rig, temperature):
    rig.reset()
    options = GenerateOptions(num_samples=3, max_new_tokens=10, temperature=temperature)
    whole = rig.engine.generate(PROMPTS, options, KEY)

    def between():
        rig.reset(rig.other_folder)
        rig.engine.generate(PROMPTS, OPTIONS, KEY)
        rig.engine.release()
        rig.reset()

    assert rig.same(go_on(rig, PROMPTS, between, options), whole)


def test_what_was_drawn_before_a_stop_is_not_drawn_again(rig):
    options = GenerateOptions(num_samples=3, max_new_tokens=10)
    rig.reset(rig.other_folder)
    under_other = rig.engine.generate(PROMPTS, options, KEY)
    rig.reset()
    whole = rig.engine.generate(PROMPTS, options, KEY)
    found = rig.draw_a_token("kept", PROMPTS, options)
    assert isinstance(found, Interrupted)
    rig.reset(rig.other_folder)
    mixed = rig.engine.generate_until("mixed", found, options, KEY)
    rows = [row for row in found.rows if whole[row].token_ids[0] != under_other[row].token_ids[0]]
    assert rows
    for row in rows:
        assert mixed[row].token_ids[0] == whole[row].token_ids[0]
        assert mixed[row].logprobs[0] == pytest.approx(whole[row].logprobs[0], abs=1e-5)


def test_rows_that_had_not_begun_wait_their_turn(rig):
    rig.reset()
    options = GenerateOptions(num_samples=MAX_ROWS // 4 + 8, max_new_tokens=3)
    whole = rig.engine.generate(PROMPTS, options, KEY)
    assert len(whole) > MAX_ROWS
    assert rig.same(go_on(rig, PROMPTS, options=options), whole)


def test_two_interrupted_rollouts_wait_side_by_side(rig):
    rig.reset()
    options = replace(OPTIONS, max_new_tokens=8)
    whole = rig.engine.generate(PROMPTS, options, KEY)
    ahead = rig.draw_a_token("ahead", PROMPTS[:2], options)
    behind = rig.draw_a_token("behind", PROMPTS[2:], options)
    found = rig.engine.generate_until("end-behind", behind, options, KEY)
    found = (*rig.engine.generate_until("end-ahead", ahead, options, KEY), *found)
    assert rig.same(found, whole)


def test_long_contexts_that_go_on_are_read_again_in_several_steps(rig):
    rig.reset()
    prompts = [Prompt(i, f"{i:03}" + "1234567890" * 12) for i in range(40)]
    options = GenerateOptions(num_samples=1, max_new_tokens=3)
    whole = rig.engine.generate(prompts, options, KEY)
    assert rig.same(go_on(rig, prompts, options=options), whole)
