"""Adapters reach vLLM merged into the weights of the base."""

import pytest

from dataflow.lora import LoraSpec
from plexrl.engines.protocol import EngineKind, ModelSource
from plexrl.engines.remote import EngineProcess
from plexrl.engines.torch_engine import TorchEngine
from plexrl.state.arena import Arena
from tests.plexrl.engines.conformance import (
    KEY,
    OPTIONS,
    PROMPTS,
    TrainBatch,
    TrainOptions,
    replace,
)

LORA = LoraSpec(rank=4)


def test_samples_of_two_adapters_are_those_of_the_torch_engine(base_folder):
    torch_engine = TorchEngine(ModelSource(base_folder, lora=LORA), "cpu")
    greedy = replace(OPTIONS, temperature=0.0, max_new_tokens=12)
    arenas, expected = [], []
    for sign in (1.0, -1.0):
        arena = Arena(torch_engine.layout().nbytes)
        torch_engine.read_folder(base_folder, arena.view)
        torch_engine.load(arena.view)
        samples = torch_engine.generate(PROMPTS, OPTIONS, KEY)
        advantages = tuple(sign * (-1.0) ** row for row in range(len(samples)))
        torch_engine.train(TrainBatch(samples, advantages), TrainOptions(learning_rate=3e-2))
        torch_engine.store(arena.view)
        arenas.append(arena)
        expected.append(torch_engine.generate(PROMPTS, greedy, KEY))
    assert [s.token_ids for s in expected[0]] != [s.token_ids for s in expected[1]]

    source = ModelSource(base_folder, is_trainable=False, kind=EngineKind.VLLM, lora=LORA)
    with EngineProcess(source) as engine:
        slots = engine.layout().slots
        assert torch_engine.layout().slots[: len(slots)] == slots
        for arena, wanted in zip((*arenas, *arenas), (*expected, *expected), strict=True):
            engine.load(arena)
            found = engine.generate(PROMPTS, greedy, KEY)
            assert [s.token_ids for s in found] == [s.token_ids for s in wanted]
            for one, other in zip(found, wanted, strict=True):
                assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
