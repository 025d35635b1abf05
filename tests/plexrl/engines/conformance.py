"""What any engine must do; a test module imports these and gives a `rig` fixture."""

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from dataflow.lora import LoraSpec
from dataflow.samples import EndReason, Prompt
from plexrl.core.layout import ROLE_OPTIMIZER, ROLE_WEIGHTS
from plexrl.engines.folders import state_bytes
from plexrl.engines.protocol import Break, DrawKey, Interrupted, TrainBatch
from plexrl.errors import EngineError, ModelFolderError
from plexrl.state.arena import Arena

PROMPTS = tuple(
    Prompt(i, text) for i, text in enumerate(["x31524=", "x0987=", "q12*34=", "x54321="])
)
OPTIONS = GenerateOptions(num_samples=3, max_new_tokens=6)
KEY = DrawKey(seed=5, iteration=2)
LETTERS = tuple("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass
class Rig:
    """An engine and how to hand arenas to it."""

    engine: Any
    folder: str
    other_folder: str
    """Same architecture, other weights."""
    handle: Any
    """Arena → what the engine's methods take."""
    lora: LoraSpec | None = None
    arenas: dict = field(default_factory=dict)
    """Folder → arena with its version 0, which tests do not write to."""

    def new_arena(self):
        return Arena(self.engine.layout().nbytes)

    def reset(self, folder=None):
        """Version 0 of the folder, in an arena and on the device."""
        folder = folder or self.folder
        if folder not in self.arenas:
            self.arenas[folder] = self.new_arena()
            self.engine.read_folder(folder, self.handle(self.arenas[folder]))
        self.engine.load(self.handle(self.arenas[folder]))
        return self.arenas[folder]

    def draw_a_token(self, name, inputs, options=OPTIONS):
        """Begin or go on with a generation that is told to stop from the start."""
        return self.engine.generate_until(Break(name, lambda: True), inputs, options, KEY)

    def draw_cancelled(self, name, samples, inputs, options=OPTIONS):
        """A generation of which some samples were cancelled before it began."""
        stop = Break(name, lambda: False, cancelled=lambda: samples)
        return self.engine.generate_until(stop, inputs, options, KEY)

    def same(self, found, expected):
        """Whether samples are equal, as far as the engine promises it."""
        return tuple(found) == tuple(expected)

    def stored(self):
        arena = self.new_arena()
        self.engine.store(self.handle(arena))
        return bytes(arena.view)

    def batch(self):
        self.reset()
        samples = self.engine.generate(PROMPTS, OPTIONS, KEY)
        advantages = tuple((-1.0) ** row * (1 + row / 7) for row in range(len(samples)))
        return TrainBatch(samples, advantages)


def by_name(samples):
    return {(s.prompt.index, s.sample_index): s for s in samples}


def shuffled(batch, step=5):
    order = [(row * step + 3) % len(batch.samples) for row in range(len(batch.samples))]
    assert sorted(order) == list(range(len(order)))
    return TrainBatch(
        tuple(batch.samples[row] for row in order), tuple(batch.advantages[row] for row in order)
    )


class RemoteRig(Rig):
    """Rig of an engine that is told to stop from outside."""

    def draw_a_token(self, name, inputs, options=OPTIONS):
        self.engine.stop(name)
        return self.engine.generate_until(name, inputs, options, KEY)

    def draw_cancelled(self, name, samples, inputs, options=OPTIONS):
        self.engine.cancel(name, samples)
        return self.engine.generate_until(name, inputs, options, KEY)


def test_the_layout_has_weights_first_and_the_size_the_folder_promises(rig):
    layout = rig.engine.layout()
    roles = [slot.role for slot in layout.slots]
    num_weights = len(layout.role(ROLE_WEIGHTS))
    assert roles == [ROLE_WEIGHTS] * num_weights + [ROLE_OPTIMIZER] * (2 * num_weights + 1)
    assert layout.nbytes == state_bytes(rig.folder, lora=rig.lora)


def test_a_loaded_state_is_stored_back_byte_for_byte(rig):
    arena = rig.reset()
    assert rig.stored() == bytes(arena.view)


@pytest.mark.slow
def test_version_zero_has_the_weights_of_its_folder_and_an_empty_optimizer(rig):
    arena = rig.reset()
    first = rig.engine.weights_sha256()
    start = rig.engine.layout().role(ROLE_OPTIMIZER)[0].offset
    assert any(arena.view[:start])
    assert not any(arena.view[start:])
    rig.reset(rig.other_folder)
    assert rig.engine.weights_sha256() != first
    rig.reset()
    assert rig.engine.weights_sha256() == first


def test_an_arena_that_is_too_small_is_refused(rig):
    with pytest.raises(EngineError, match="too small"):
        rig.engine.load(rig.handle(Arena(64)))


def test_a_folder_that_does_not_exist_is_refused(rig):
    with pytest.raises(ModelFolderError, match="nowhere"):
        rig.engine.read_folder("nowhere", rig.handle(rig.new_arena()))


def test_prompts_give_their_samples_in_order(rig):
    rig.reset()
    samples = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    assert [(s.prompt, s.sample_index) for s in samples] == [
        (p, i) for p in PROMPTS for i in range(3)
    ]
    for sample in samples:
        assert len(sample.token_ids) == len(sample.policy_mask) == len(sample.logprobs)
        assert all(sample.policy_mask)
        assert all(value < 0 for value in sample.logprobs)
        assert (sample.turn, sample.is_active) == (1, False)
        assert sample.end in {EndReason.STOP, EndReason.LENGTH}
        assert (sample.end is EndReason.LENGTH) <= (len(sample.token_ids) == 6)


def test_a_sample_depends_neither_on_order_nor_on_batch_mates(rig):
    rig.reset()
    together = by_name(rig.engine.generate(PROMPTS, OPTIONS, KEY))
    backwards = by_name(rig.engine.generate(PROMPTS[::-1], OPTIONS, KEY))
    assert backwards == together
    for prompt in PROMPTS:
        alone = by_name(rig.engine.generate([prompt], replace(OPTIONS, num_samples=1), KEY))
        assert alone == {(prompt.index, 0): together[prompt.index, 0]}


def test_a_smaller_token_limit_cuts_and_changes_nothing_before(rig):
    rig.reset()
    long = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    short = rig.engine.generate(PROMPTS, replace(OPTIONS, max_new_tokens=2), KEY)
    assert [s.token_ids for s in short] == [s.token_ids[:2] for s in long]
    assert [s.logprobs for s in short] == [s.logprobs[:2] for s in long]


@pytest.mark.parametrize("key", [DrawKey(6, 2), DrawKey(5, 3)])
def test_another_key_draws_other_tokens(rig, key):
    rig.reset()
    first = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    assert [s.token_ids for s in rig.engine.generate(PROMPTS, OPTIONS, key)] != [
        s.token_ids for s in first
    ]


def test_greedy_samples_do_not_depend_on_the_key(rig):
    rig.reset()
    greedy = replace(OPTIONS, temperature=0.0)
    samples = rig.engine.generate(PROMPTS, greedy, KEY)
    assert rig.engine.generate(PROMPTS, greedy, DrawKey(0, 0)) == samples
    assert len({s.token_ids for s in samples if s.prompt.index == 0}) == 1


def test_a_stop_text_ends_the_turn_and_stays_in_the_sample(rig):
    rig.reset()
    samples = rig.engine.generate(PROMPTS, replace(OPTIONS, stop=LETTERS), KEY)
    called = [s for s in samples if s.end is EndReason.TOOL_CALL]
    assert called
    for sample in samples:
        assert sample.is_active == (sample.end is EndReason.TOOL_CALL)
        letters = [c for c in sample.text if c in LETTERS]
        assert letters == ([sample.text[-1]] if sample.is_active else [])


def test_a_turn_goes_on_after_what_the_environment_said(rig):
    rig.reset()
    first = rig.engine.generate(PROMPTS, replace(OPTIONS, stop=LETTERS), KEY)
    answered = tuple(replace(s, pending_text="408|") if s.is_active else s for s in first)
    second = rig.engine.generate(answered, OPTIONS, KEY)
    for before, after in zip(first, second, strict=True):
        if not before.is_active:
            assert after == before
            continue
        start = len(before.token_ids)
        assert after.token_ids[:start] == before.token_ids
        assert after.policy_mask[start : start + 5] == (False, False, False, False, True)
        assert after.logprobs[start : start + 4] == (0.0,) * 4
        assert after.text.startswith(before.text + "408|")
        assert (after.turn, after.pending_text, after.is_active) == (2, "", False)


@pytest.mark.slow
def test_continued_samples_do_not_depend_on_order_either(rig):
    rig.reset()
    first = rig.engine.generate(PROMPTS, replace(OPTIONS, stop=LETTERS), KEY)
    answered = tuple(replace(s, pending_text="1|") if s.is_active else s for s in first)
    together = by_name(rig.engine.generate(answered, OPTIONS, KEY))
    assert by_name(rig.engine.generate(answered[::-1], OPTIONS, KEY)) == together
    one = next(s for s in answered if s.is_active)
    assert rig.engine.generate([one], OPTIONS, KEY) == (
        together[one.prompt.index, one.sample_index],
    )


INTERRUPTED = replace(OPTIONS, stop=LETTERS, max_new_tokens=5)


BREAKS = itertools.count()


def go_on(rig, inputs, between=lambda: None, options=INTERRUPTED):
    """Samples of a generation that is interrupted after each token."""
    found = inputs
    for _ in range(200):
        found = rig.draw_a_token(f"break-{next(BREAKS)}", found, options)
        if not isinstance(found, Interrupted):
            return found
        between()
    raise AssertionError("the generation does not come to an end")


def test_a_generation_interrupted_after_each_token_gives_the_samples_of_a_whole_one(rig):
    rig.reset()
    whole = rig.engine.generate(PROMPTS, INTERRUPTED, KEY)
    assert rig.same(go_on(rig, PROMPTS), whole)
    answered = tuple(replace(s, pending_text="1|") if s.is_active else s for s in whole)
    assert rig.same(go_on(rig, answered), rig.engine.generate(answered, INTERRUPTED, KEY))


@pytest.mark.slow
def test_other_weights_and_generations_in_between_change_nothing(rig):
    rig.reset()
    whole = rig.engine.generate(PROMPTS, INTERRUPTED, KEY)

    def between():
        rig.reset(rig.other_folder)
        rig.engine.generate(PROMPTS[::-1], OPTIONS, KEY)
        rig.reset()

    assert rig.same(go_on(rig, PROMPTS, between), whole)


def test_what_was_discarded_is_drawn_again_to_the_same_tokens(rig):
    rig.reset()
    whole = rig.engine.generate(PROMPTS, INTERRUPTED, KEY)
    found = rig.draw_a_token("first", PROMPTS, INTERRUPTED)
    found = rig.draw_a_token("second", found, INTERRUPTED)
    assert {found.samples[row].turn for row in found.rows} == {0}
    rig.engine.discard("second")
    assert rig.same(go_on(rig, found), whole)


def test_a_cancelled_sample_ends_with_a_token_and_the_others_go_on(rig):
    rig.reset()
    options = replace(OPTIONS, stop=LETTERS)
    whole = rig.engine.generate(PROMPTS, options, KEY)
    longer = [sample for sample in whole if len(sample.token_ids) > 1]
    chosen = frozenset((s.prompt.index, s.sample_index) for s in longer[:2]) | {(9, 9)}
    found = rig.draw_cancelled("cancelled", chosen, PROMPTS, options)
    for sample, expected in zip(found, whole, strict=True):
        start = len(sample.token_ids)
        assert start > 0
        assert sample.token_ids == expected.token_ids[:start]
        assert sample.logprobs == pytest.approx(expected.logprobs[:start], abs=1e-5)
        if (sample.prompt.index, sample.sample_index) not in chosen:
            assert (sample.end, start) == (expected.end, len(expected.token_ids))
        elif start < len(expected.token_ids):
            assert (sample.end, sample.is_active) == (EndReason.CANCELLED, False)
    assert sum(s.end is EndReason.CANCELLED for s in found) > 0
    # Of another generation nothing was cancelled.
    again = rig.engine.generate(PROMPTS, options, KEY)
    assert [s.token_ids for s in again] == [s.token_ids for s in whole]


def test_a_sample_cancelled_between_turns_has_no_further_one(rig):
    rig.reset()
    first = rig.engine.generate(PROMPTS, replace(OPTIONS, stop=LETTERS), KEY)
    called = [s for s in first if s.is_active]
    answered = tuple(replace(s, pending_text="408|") for s in called)
    chosen = frozenset({(called[0].prompt.index, called[0].sample_index)})
    ended, *others = rig.draw_cancelled("between turns", chosen, answered)
    assert (ended.end, ended.is_active) == (EndReason.CANCELLED, False)
    assert (ended.turn, all(other.turn == 2 for other in others)) == (1, True)


@pytest.mark.parametrize("limits", [{"top_k": 1}, {"top_p": 1e-6}])
def test_the_narrowest_truncation_leaves_the_greedy_token(rig, limits):
    rig.reset()
    greedy = rig.engine.generate(PROMPTS, replace(OPTIONS, temperature=0.0), KEY)
    samples = rig.engine.generate(PROMPTS, replace(OPTIONS, **limits), KEY)
    assert [s.token_ids for s in samples] == [s.token_ids for s in greedy]
    assert all(value == 0 for s in samples for value in s.logprobs)


@pytest.mark.parametrize("limits", [{"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_a_truncation_out_of_range_is_refused(rig, limits):
    with pytest.raises(EngineError, match="top_"):
        rig.engine.generate(PROMPTS, replace(OPTIONS, **limits), KEY)


def test_a_prompt_longer_than_the_context_is_refused(rig):
    with pytest.raises(EngineError, match="prompt 7 has 600 tokens"):
        rig.engine.generate([Prompt(7, "9" * 600)], OPTIONS, KEY)


def test_the_context_ends_a_completion(rig):
    rig.reset()
    (sample,) = rig.engine.generate([Prompt(0, "9" * 510)], GenerateOptions(1, 8), KEY)
    assert len(sample.token_ids) <= 2
    called = replace(sample, is_active=True, pending_text="1234")
    (ended,) = rig.engine.generate([called], OPTIONS, KEY)
    assert (ended.end, ended.is_active) == (EndReason.LENGTH, False)
    assert ended.token_ids == sample.token_ids


def test_an_empty_prompt_is_refused(rig):
    with pytest.raises(EngineError, match="prompt 3"):
        rig.engine.generate([Prompt(3, "")], OPTIONS, KEY)


def test_logprobs_agree_with_those_of_the_rollout(rig):
    samples = rig.batch().samples
    for temperature in (1.0, 0.7):
        drawn = rig.engine.generate(PROMPTS, replace(OPTIONS, temperature=temperature), KEY)
        scored = rig.engine.logprobs(drawn, LogprobOptions(temperature))
        for sample, values in zip(drawn, scored, strict=True):
            assert values == pytest.approx(sample.logprobs, abs=1e-4)
    assert rig.engine.logprobs((), LogprobOptions()) == ()
    assert len(rig.engine.logprobs(samples, LogprobOptions())) == len(samples)


def test_logprobs_of_a_sample_do_not_depend_on_the_others(rig):
    samples = rig.batch().samples
    together = rig.engine.logprobs(samples, LogprobOptions())
    assert rig.engine.logprobs(samples[::-1], LogprobOptions()) == together[::-1]
    assert rig.engine.logprobs(samples[4:5], LogprobOptions()) == together[4:5]


def test_training_moves_weights_and_counts_steps(rig):
    batch = rig.batch()
    before = rig.engine.weights_sha256()
    metrics = rig.engine.train(batch, TrainOptions(num_epochs=2, num_minibatches=3))
    assert rig.engine.weights_sha256() != before
    assert metrics["grad_norm"] > 0
    assert 0 < metrics["entropy"] < 5
    assert 0 <= metrics["clip_fraction"] <= 1
    assert metrics["logprob_mismatch"] < 1e-4
    step = rig.engine.layout().slots[-1]
    raw = rig.stored()[step.offset : step.offset + 4]
    assert memoryview(raw).cast("f")[0] == 6.0


@pytest.mark.slow
@pytest.mark.parametrize("options", [TrainOptions(), TrainOptions(num_epochs=2, num_minibatches=3)])
def test_the_order_of_samples_changes_no_bit_of_the_weights(rig, options):
    batch = rig.batch()
    rig.engine.train(batch, options)
    straight = rig.stored()
    rig.reset()
    rig.engine.train(shuffled(batch), options)
    assert rig.stored() == straight


@pytest.mark.slow
def test_a_swap_between_two_trainings_changes_no_bit(rig):
    batch = rig.batch()
    rig.engine.train(batch, TrainOptions())
    rig.engine.train(batch, TrainOptions())
    straight = rig.stored()
    rig.reset()
    rig.engine.train(batch, TrainOptions())
    kept = rig.new_arena()
    rig.engine.store(rig.handle(kept))
    rig.reset(rig.other_folder)
    rig.engine.train(batch, TrainOptions(learning_rate=1e-2))
    rig.engine.load(rig.handle(kept))
    rig.engine.train(batch, TrainOptions())
    assert rig.stored() == straight


@pytest.mark.slow
def test_given_old_logprobs_take_the_place_of_recomputed_ones(rig):
    batch = rig.batch()
    old = rig.engine.logprobs(batch.samples, LogprobOptions())
    rig.engine.train(replace(batch, old_logprobs=old), TrainOptions())
    given = rig.stored()
    rig.reset()
    rig.engine.train(batch, TrainOptions())
    assert rig.stored() == given
    rig.reset()
    far = tuple(tuple(value - 1.0 for value in row) for row in old)
    metrics = rig.engine.train(replace(batch, old_logprobs=far), TrainOptions())
    assert metrics["clip_fraction"] == pytest.approx(1.0)


def test_tokens_of_the_environment_are_not_trained_on(rig):
    batch = rig.batch()
    sample = batch.samples[0]
    mask = (False, *sample.policy_mask[1:])
    masked = replace(batch, samples=(replace(sample, policy_mask=mask), *batch.samples[1:]))
    total = rig.engine.train(batch, TrainOptions())["num_tokens"]
    rig.reset()
    assert rig.engine.train(masked, TrainOptions())["num_tokens"] == total - 1


@pytest.mark.slow
def test_a_loss_that_is_not_finite_leaves_the_state_as_it_was(rig):
    batch = rig.batch()
    before = rig.stored()
    broken = replace(batch, advantages=(*batch.advantages[:-1], float("nan")))
    with pytest.raises(EngineError, match="nan"):
        rig.engine.train(broken, TrainOptions())
    with pytest.raises(EngineError, match="nan"):
        rig.engine.train(broken, TrainOptions(num_minibatches=3))
    assert rig.stored() == before


def own_loss(logprobs_BT, old_logprobs_BT, advantages_B, mask_BT):
    ratio_BT = (logprobs_BT - old_logprobs_BT).exp()
    return -(ratio_BT * mask_BT * advantages_B[:, None]).sum()


def test_a_loss_of_ones_own_is_used(rig):
    batch = rig.batch()
    rig.engine.train(batch, TrainOptions(loss="reinforce"))
    named = rig.stored()
    rig.reset()
    rig.engine.train(batch, TrainOptions(loss=own_loss))
    assert rig.stored() != named


def broken_loss(*_tensors):
    raise ZeroDivisionError("own fault")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("grpoo", "'grpoo' is not known"),
        (
            broken_loss,
            r"broken_loss raised ZeroDivisionError \(conformance.py, line \d+\): own fault",
        ),
        (lambda *_tensors: 3.0, "returned 3.0"),
    ],
)
def test_a_wrong_loss_is_named(rig, loss, message):
    batch = rig.batch()
    with pytest.raises(EngineError, match=message):
        rig.engine.train(batch, TrainOptions(loss=loss))


def test_a_malformed_batch_is_refused(rig):
    batch = rig.batch()
    with pytest.raises(EngineError, match="11 advantages"):
        rig.engine.train(replace(batch, advantages=batch.advantages[1:]), TrainOptions())
    with pytest.raises(EngineError, match="cannot be split into 13 minibatches"):
        rig.engine.train(batch, TrainOptions(num_minibatches=13))
    with pytest.raises(EngineError, match="old_logprobs"):
        rig.engine.train(replace(batch, old_logprobs=((0.0,),) * 12), TrainOptions())


@pytest.mark.slow
def test_an_exported_folder_is_read_back_with_the_same_weights(rig, tmp_path):
    batch = rig.batch()
    rig.engine.train(batch, TrainOptions())
    trained = rig.engine.weights_sha256()
    rig.engine.export(str(tmp_path / "model"))
    rig.reset()
    assert rig.engine.weights_sha256() != trained
    rig.reset(str(tmp_path / "model"))
    assert rig.engine.weights_sha256() == trained


def test_released_memory_is_taken_again_by_the_next_load(rig):
    batch = rig.batch()
    rig.engine.train(batch, TrainOptions())
    trained = rig.stored()
    rig.reset()
    samples = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    assert rig.engine.memory_bytes() > 0
    rig.engine.release()
    rig.engine.release()
    for use in (
        lambda: rig.engine.generate(PROMPTS, OPTIONS, KEY),
        lambda: rig.engine.logprobs(samples, LogprobOptions()),
        lambda: rig.engine.train(batch, TrainOptions()),
        rig.stored,
    ):
        with pytest.raises(EngineError, match="released its memory"):
            use()
    rig.reset()
    assert rig.engine.generate(PROMPTS, OPTIONS, KEY) == samples
    rig.engine.train(batch, TrainOptions())
    assert rig.stored() == trained
