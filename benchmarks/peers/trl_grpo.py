"""The peer of the benchmark `learning`: TRL's GRPOTrainer on the same task and settings.

Run as ``python -m benchmarks.peers.trl_grpo JSON`` by an interpreter that has TRL; prints one
JSON object on its last line. It keeps to itself since TRL pins other versions than PlexRL.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from dataflow.datasets import LetterPrompts
from dataflow.rewards import OrderVerifier
from dataflow.samples import Sample

WARM_STEPS = 2
"""Steps at the start that are not counted."""


class _Clock(TrainerCallback):
    """Notes when steps end, and what they earned."""

    def __init__(self) -> None:
        self.ended_s: list[float] = []
        self.rewards: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 (transformers' signature)
        self.ended_s.append(time.perf_counter())

    def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:  # noqa: ANN401
        if "reward" in logs:
            self.rewards.append(logs["reward"])


def run(folder: str, iterations: int, seed: int) -> dict[str, Any]:
    """Samples per second, and the mean reward of each step."""
    torch.set_num_threads(1)
    prompts = LetterPrompts(seed=seed).batch(0, 16 * iterations)
    by_text = {prompt.text: prompt for prompt in prompts}
    verifier = OrderVerifier("ascending")

    def ascending(prompts: list[str], completions: list[str], **_: Any) -> list[float]:  # noqa: ANN401
        pairs = zip(prompts, completions, strict=True)
        return [verifier(Sample(by_text[p], 0, (), text=c)) for p, c in pairs]

    clock = _Clock()
    data = Dataset.from_list([{"prompt": prompt.text} for prompt in prompts])
    with tempfile.TemporaryDirectory() as output:
        trainer = GRPOTrainer(
            model=folder,
            reward_funcs=ascending,
            args=_settings(output, iterations, seed),
            train_dataset=data,
            callbacks=[clock],
        )
        trainer.train()
    steps_s = clock.ended_s[-1] - clock.ended_s[WARM_STEPS - 1]
    return {
        "samples_per_s": 128 * (len(clock.ended_s) - WARM_STEPS) / steps_s,
        "rewards": clock.rewards,
    }


def _settings(output: str, iterations: int, seed: int) -> GRPOConfig:
    """The recipe of PlexRL's own jobs, in TRL's words."""
    return GRPOConfig(
        output_dir=output,
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=128,
        num_generations=8,
        max_completion_length=8,
        max_steps=iterations,
        learning_rate=2e-4,
        adam_beta1=0.9,
        adam_beta2=0.95,
        scale_rewards="batch",
        loss_type="dapo",
        epsilon_high=0.28,
        beta=0.0,
        gradient_checkpointing=False,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        seed=seed,
        disable_tqdm=True,
    )


if __name__ == "__main__":
    print(json.dumps(run(**json.loads(sys.argv[1]))))
