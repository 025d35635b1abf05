"""New weights in place: every way in which vLLM was seen to keep old ones in silence."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from transformers import LlamaConfig, Qwen2Config

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from dataflow.samples import Prompt
from plexrl.engines.protocol import DrawKey, EngineKind, ModelSource, TrainBatch
from plexrl.engines.remote import EngineProcess
from plexrl.engines.torch_engine import TorchEngine
from plexrl.engines.vllm_settings import ENVIRONMENT
from plexrl.errors import EngineError, ModelFolderError
from plexrl.state.arena import Arena
from tests.plexrl.engines.conformance import KEY, OPTIONS, PROMPTS
from tests.plexrl.engines.test_torch_engine import SMALL, save

MAX_DIFF = 1e-4
"""Nats between vLLM and torch in float32."""

LONG = tuple(Prompt(i, f"{i}" + "1234567890" * 12) for i in range(3))
"""Prompts of several blocks of the prefix cache."""

WIDE = {**SMALL, "num_attention_heads": 2}
"""Heads of 32, the smallest vLLM has a CPU kernel for."""


def max_diff(torch_engine, samples, temperature=1.0):
    scored = torch_engine.logprobs(samples, LogprobOptions(temperature))
    return max(
        abs(value - drawn)
        for sample, values in zip(samples, scored, strict=True)
        for value, drawn, is_drawn in zip(values, sample.logprobs, sample.policy_mask, strict=True)
        if is_drawn
    )


@pytest.mark.parametrize("temperature", [1.0, 0.5, 1.7, 0.0])
def test_logprobs_are_those_of_the_distribution_drawn_from(rig, temperature):
    rig.reset()
    options = GenerateOptions(8, 24, temperature)
    samples = rig.engine.generate(PROMPTS, options, KEY)
    assert max_diff(rig.torch, samples, temperature) < MAX_DIFF


def test_tied_embeddings_are_updated_too(rig):
    assert rig.torch._network.model.config.tie_word_embeddings
    rig.reset()
    before = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    assert max_diff(rig.torch, before) < MAX_DIFF
    rig.reset(rig.other_folder)
    after = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    assert max_diff(rig.torch, after) < MAX_DIFF
    assert max_diff(rig.torch, before) > 0.1


def test_no_cached_prefix_outlives_its_weights(rig):
    rig.reset()
    rig.engine.generate(LONG, OPTIONS, KEY)
    rig.reset(rig.other_folder)
    samples = rig.engine.generate(LONG, OPTIONS, KEY)
    assert max_diff(rig.torch, samples) < MAX_DIFF


def test_what_training_changed_is_what_samples_next(rig):
    rig.reset()
    samples = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    batch_advantages = tuple((-1.0) ** row for row in range(len(samples)))
    for _ in range(3):
        metrics = rig.torch.train(
            TrainBatch(samples, batch_advantages), TrainOptions(learning_rate=1e-2)
        )
        assert metrics["logprob_mismatch"] < MAX_DIFF
        arena = rig.new_arena()
        rig.torch.store(arena.view)
        rig.engine.load(arena)
        arena.close()
        samples = rig.engine.generate(PROMPTS, OPTIONS, KEY)
        assert max_diff(rig.torch, samples) < MAX_DIFF


def test_the_arena_may_change_after_it_was_loaded(rig):
    rig.reset()
    expected = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    arena = rig.new_arena()
    rig.torch.store(arena.view)
    rig.engine.load(arena)
    arena.view[:] = bytes(len(arena.view))
    arena.close()
    assert rig.engine.generate(PROMPTS, OPTIONS, KEY) == expected


def test_jobs_of_one_architecture_take_turns_on_one_engine(rig):
    alone = {}
    for folder in (rig.folder, rig.other_folder):
        rig.reset(folder)
        alone[folder] = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    assert alone[rig.folder] != alone[rig.other_folder]
    for folder in (rig.folder, rig.other_folder) * 3:
        rig.reset(folder)
        found = rig.engine.generate(PROMPTS, OPTIONS, KEY)
        assert [s.token_ids for s in found] == [s.token_ids for s in alone[folder]]


def test_nan_weights_are_noticed_in_a_rollout(rig):
    arena = rig.new_arena()
    arena.view[:] = b"\xff" * len(arena.view)
    rig.engine.load(arena)
    with pytest.raises(EngineError, match="NaN"):
        rig.engine.generate(PROMPTS, GenerateOptions(1, 2), KEY)
    rig.reset()
    assert max_diff(rig.torch, rig.engine.generate(PROMPTS, OPTIONS, KEY)) < MAX_DIFF


def test_an_engine_goes_on_after_an_error(rig):
    rig.reset()
    expected = rig.engine.generate(PROMPTS, OPTIONS, KEY)
    with pytest.raises(EngineError, match="temperature"):
        rig.engine.generate(PROMPTS, replace(OPTIONS, temperature=1e-3), KEY)
    assert rig.engine.generate(PROMPTS, OPTIONS, KEY) == expected


def test_released_memory_is_given_back_and_taken_again(rig):
    rig.reset()
    expected = rig.engine.generate(LONG, OPTIONS, KEY)
    full_bytes = rig.engine.memory_bytes()
    rig.engine.release()
    rig.engine.release()
    cache_bytes = 100 << 20
    assert rig.engine.memory_bytes() < full_bytes - cache_bytes
    with pytest.raises(EngineError, match="released its memory"):
        rig.engine.generate(PROMPTS, OPTIONS, KEY)
    for _ in range(2):
        rig.reset()
        found = rig.engine.generate(LONG, OPTIONS, KEY)
        assert [s.token_ids for s in found] == [s.token_ids for s in expected]
        assert max_diff(rig.torch, found) < MAX_DIFF


OTHERS = {
    "llama": LlamaConfig(**WIDE, num_key_value_heads=1, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**WIDE, num_key_value_heads=2, tie_word_embeddings=True),
}


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Architecture → its folder, and the future of its engine: they start side by side."""
    folders = {kind: save(tmp_path_factory.mktemp(kind), OTHERS[kind]) for kind in OTHERS}
    with ThreadPoolExecutor(len(folders)) as pool, ExitStack() as ending:
        found = {
            kind: (folder, pool.submit(EngineProcess, ModelSource(folder, kind=EngineKind.VLLM)))
            for kind, folder in folders.items()
        }
        for _, starting in found.values():
            ending.callback(lambda starting=starting: starting.result().close())
        yield found


@pytest.mark.parametrize("kind", OTHERS)
def test_other_architectures_share_their_states_too(kind, started):
    folder, starting = started[kind]
    torch_engine = TorchEngine(ModelSource(folder), "cpu")
    arena = Arena(torch_engine.layout().nbytes)
    engine = starting.result()
    torch_engine._network.weights.mul_(1.5)
    torch_engine.store(arena.view)
    engine.load(arena)
    samples = engine.generate(PROMPTS, GenerateOptions(4, 16), DrawKey(0, 0))
    assert max_diff(torch_engine, samples) < MAX_DIFF


def test_a_head_size_without_a_kernel_is_the_users_error(tmp_path):
    folder = save(tmp_path, LlamaConfig(**SMALL, num_key_value_heads=1))
    with pytest.raises(ModelFolderError, match="attention heads of 16"):
        EngineProcess(ModelSource(folder, kind=EngineKind.VLLM))


LEFT_OUT = """
import sys
from plexrl.engines.protocol import EngineKind, ModelSource
from plexrl.engines.vllm_engine import VLLMEngine
from plexrl.engines.torch_engine import TorchEngine
from plexrl.engines.vllm_settings import ENVIRONMENT
from plexrl.engines.vllm_transfer import update
from plexrl.errors import EngineError
from tests.plexrl.engines.conformance import KEY, OPTIONS, PROMPTS

folder, other = sys.argv[1:]
torch_engine = TorchEngine(ModelSource(folder), "cpu")
arenas = []
for name in (folder, other):
    arenas.append(memoryview(bytearray(torch_engine.layout().nbytes)))
    torch_engine.read_folder(name, arenas[-1])
engine = VLLMEngine(ModelSource(folder, kind=EngineKind.VLLM))
expected = []
for arena in arenas:
    engine.load(arena)
    expected.append(engine.generate(PROMPTS, OPTIONS, KEY))
weights = [w for w in engine._weights(arenas[0]) if "down_proj" not in w[0]]
for given, what in ((weights, "no new values"), (iter(weights[:5]), "no new values")):
    try:
        update(engine._llm, given, "broken")
    except EngineError as error:
        print(what in str(error), "embed_tokens" in str(error), "norm" in str(error))
engine.load(arenas[0])
print(engine.generate(PROMPTS, OPTIONS, KEY) == expected[0] != expected[1])
engine._llm.update_weight_version("of somebody else")
try:
    engine.generate(PROMPTS, OPTIONS, KEY)
    print("unnoticed")
except EngineError as error:
    print("sampled with weights ['of somebody else'" in str(error))
engine.load(arenas[0])
try:
    VLLMEngine(ModelSource(folder, kind=EngineKind.VLLM))
except EngineError as error:
    print("two in one process" in str(error), engine.generate(PROMPTS, OPTIONS, KEY) == expected[0])
"""


def test_weights_left_out_a_wrong_tag_and_a_second_engine_in_the_process_are_errors(
    base_folder, other_folder
):
    done = subprocess.run(
        [sys.executable, "-c", LEFT_OUT, base_folder, other_folder],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **ENVIRONMENT},
    )
    *wrong_updates, right_update, wrong_tag, second_engine = done.stdout.splitlines()[-5:]
    assert wrong_updates == ["True False False", "True False True"]
    assert right_update == wrong_tag == "True"
    assert second_engine == "True True"
