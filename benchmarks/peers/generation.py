"""Peers of the rollout benchmark: the same prompts by bare vLLM and by `transformers.generate`.

Run as ``python -m benchmarks.peers.generation PEER WORK`` with the fields of `Work` as JSON.
Answers each line on its input with one line of JSON: tokens and seconds of one round.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from plexrl.engines.vllm_settings import engine_arguments


@dataclass(frozen=True, slots=True)
class Work:
    """What one round generates."""

    folder: str
    prompts: tuple[str, ...]
    num_samples: int
    max_new_tokens: int

    def to_json(self) -> str:
        """As the command line carries it."""
        return json.dumps(asdict(self))


def bare_vllm(work: Work) -> Callable[[], int]:
    """``LLM.generate`` with the settings of `plexrl.engines.vllm_settings`."""
    from vllm import LLM, SamplingParams  # noqa: PLC0415 (optional, and seconds to import)

    config = AutoConfig.from_pretrained(work.folder)
    tokenizer = AutoTokenizer.from_pretrained(work.folder)
    llm = LLM(model=work.folder, **engine_arguments(config, is_on_gpu=False))
    prompts = [{"prompt_token_ids": tokenizer.encode(text)} for text in work.prompts]
    params = SamplingParams(
        n=work.num_samples,
        temperature=1.0,
        max_tokens=work.max_new_tokens,
        stop_token_ids=[tokenizer.eos_token_id],
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
    )

    def round_() -> int:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return sum(len(part.token_ids) for output in outputs for part in output.outputs)

    return round_


def transformers_generate(work: Work) -> Callable[[], int]:
    """``generate`` on all rows at once, padded on the left, in one thread."""
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(work.folder, padding_side="left")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(work.folder, dtype=torch.float32).eval()
    inputs = tokenizer(list(work.prompts), return_tensors="pt", padding=True)
    length = inputs["input_ids"].shape[1]

    def round_() -> int:
        with torch.inference_mode():
            output = model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                do_sample=True,
                temperature=1.0,
                top_k=0,
                num_return_sequences=work.num_samples,
                max_new_tokens=work.max_new_tokens,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        drawn = output[:, length:]
        is_end = drawn == tokenizer.eos_token_id
        # Tokens up to and with the first end; what follows is padding.
        return int((is_end.cumsum(-1) - is_end.long() == 0).sum())

    return round_


PEERS = {"vllm": bare_vllm, "transformers": transformers_generate}


def main() -> None:
    """Serve rounds until the input ends."""
    name, text = sys.argv[1:]
    round_ = PEERS[name](Work(**json.loads(text)))
    answers = sys.stdout
    for _ in sys.stdin:
        start_s = time.perf_counter()
        num_tokens = round_()
        answers.write(json.dumps([num_tokens, time.perf_counter() - start_s]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
