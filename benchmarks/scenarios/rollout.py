"""Rollouts: through the service against bare vLLM, and by the torch engine against `generate`.

Peers and ours take turns, now one first and now the other, each in one process with one thread, and
ratios are medians over the rounds, so that a machine that gets slower does so for both. Tokens are
counted as drawn, ends included. Where vLLM is absent its figures are left out.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Never

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

import plexrl
from benchmarks.contract import BenchmarkResult, Progress
from benchmarks.peers.generation import Work
from dataflow.calls import (
    Attached,
    AttachOptions,
    GenerateOptions,
    LLMCall,
    LogprobOptions,
    Options,
    VersionToken,
)
from dataflow.phases import Phase
from dataflow.samples import Prompt, Sample
from plexrl.engines import vllm_settings
from plexrl.engines.child_environment import child_command, child_environment
from plexrl.engines.protocol import EngineKind, ModelSource
from plexrl.engines.remote import EngineProcess
from plexrl.engines.tiny_model import tiny_tokenizer
from plexrl.services.service import GroupService
from plexrl.state.arena import Arena
from plexrl.state.manager import StateManager
from plexrl.state.zarr_store import ZarrStore

SEED = 0
NUM_UPDATES = 5
HOST_BUDGET_BYTES = 256 << 20


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Measure `service_over_vllm`, `torch_over_transformers` and what new weights take."""
    rounds = 2 if quick else 10
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = _untrained(f"{scratch}/model")
        if vllm_settings.is_installed():
            _measure_vllm(folder, rounds, quick, progress, figures, peers)
            progress("weight updates")
            figures |= _weight_updates(folder)
        else:
            progress("vLLM is not installed: its figures are left out")
        # Warmed up, so that completions end where they should: most early, some late.
        base = plexrl.tiny_base("letters", seed=SEED)
        _measure_torch(base, rounds, quick, progress, figures, peers)
    return BenchmarkResult("rollout", figures, peers, SEED)


def _untrained(folder: str) -> str:
    """A model of 3.2 M parameters whose completions are long: one token in a hundred is an end."""
    config = Qwen3Config(
        vocab_size=len(tiny_tokenizer()),
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(SEED)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


class Peer:
    """A peer in a process of its own."""

    def __init__(self, name: str, work: Work) -> None:
        self._process = subprocess.Popen(
            child_command("benchmarks.peers.generation", name, work.to_json()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=child_environment(vllm_settings.ENVIRONMENT if name == "vllm" else None),
        )

    def round(self) -> float:
        """Tokens per second of one round."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            # Libraries print too.
            if line.startswith("["):
                num_tokens, seconds = json.loads(line)
                return float(num_tokens / seconds)
        raise RuntimeError(f"the peer ended with status {self._process.wait()}")

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _nobody(*_: object) -> Never:
    raise RuntimeError("the only group of this benchmark has nobody to call")


class NoPeers:
    """The other groups of a cluster that has one."""

    lend = read = give_back = hold = let_go = _nobody


class Service:
    """A group's service in this process, with one frozen model open on it."""

    def __init__(self, folder: str, store: str, rollout_engine: str, stack: ExitStack) -> None:
        zarr_store = ZarrStore(Path(store))
        stack.callback(zarr_store.close)
        states = StateManager(zarr_store, host_budget_bytes=HOST_BUDGET_BYTES)
        self._service = GroupService(
            "group-0",
            states=states,
            start_engine=EngineProcess,
            peers=NoPeers(),
            current_id=lambda: "benchmark",
            report=lambda _report: None,
            open_store=lambda _name: nullcontext(zarr_store),
            lease_timeout_s=60.0,
            hold_timeout_s=60.0,
        )
        stack.callback(self._service.close)
        options = AttachOptions(folder, is_trainable=False, rollout_engine=rollout_engine)
        attached = self._call(Phase.SYNC, 0, options, ())
        assert isinstance(attached, Attached)
        self._token: VersionToken = attached.token

    def generate(
        self, prompts: tuple[Prompt, ...], options: GenerateOptions, iteration: int
    ) -> Sequence[Sample]:
        """One rollout under a lease."""
        samples = self._call(Phase.ROLLOUT, iteration, options, (self._token, prompts))
        assert isinstance(samples, Sequence)
        return samples

    def logprobs(self, samples: Sequence[Sample]) -> tuple[tuple[float, ...], ...]:
        """The same samples by the training forward."""
        values = self._call(Phase.LOGPROB, 0, LogprobOptions(), (self._token, samples))
        assert isinstance(values, tuple)
        return values

    def _call(
        self, function: Phase, iteration: int, options: Options, inputs: tuple[object, ...]
    ) -> object:
        call = LLMCall("rollout", "actor", function, iteration, 0, 0, SEED, options)
        return self._service(call, inputs)


def _take_turns(
    peer: Peer, ours: Callable[[int], Sequence[Sample]], rounds: int, say: Callable[[int], None]
) -> tuple[float, float, float]:
    """Medians over the rounds, the first of which warms up and does not count.

    Tokens per second of peer and ours, and the ratio of ours to the peer's of the same round.
    """
    peer_rates: list[float] = []
    our_rates: list[float] = []

    def our_turn(index: int) -> None:
        start_s = time.perf_counter()
        samples = ours(index)
        seconds = time.perf_counter() - start_s
        our_rates.append(sum(len(sample.token_ids) for sample in samples) / seconds)

    turns = [lambda _: peer_rates.append(peer.round()), our_turn]
    for index in range(rounds + 1):
        say(index)
        for turn in turns[:: -1 if index % 2 else 1]:
            turn(index)
    theirs, mine = peer_rates[1:], our_rates[1:]
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    return statistics.median(theirs), statistics.median(mine), statistics.median(ratios)


def _measure_vllm(
    folder: str,
    rounds: int,
    quick: bool,
    progress: Progress,
    figures: dict[str, float],
    peers: dict[str, float],
) -> None:
    texts = tuple(f"x{31524 + index}=" for index in range(16 if quick else 64))
    work = Work(folder, texts, num_samples=8, max_new_tokens=32)
    prompts = tuple(Prompt(index, text) for index, text in enumerate(texts))
    options = GenerateOptions(work.num_samples, work.max_new_tokens)
    with ExitStack() as stack:
        store = stack.enter_context(tempfile.TemporaryDirectory())
        service = Service(folder, store, "vllm", stack)
        peer = stack.enter_context(Peer("vllm", work))
        theirs, ours, ratio = _take_turns(
            peer,
            lambda index: service.generate(prompts, options, index),
            rounds,
            lambda index: progress(f"vLLM: round {index} of {rounds}"),
        )
        samples = service.generate(prompts, options, 0)
        scored = service.logprobs(samples)
    peers["vllm_tokens_per_s"] = theirs
    figures["service_tokens_per_s"] = ours
    figures["service_over_vllm"] = ratio
    figures["vllm_torch_logprob_max_diff"] = max(
        abs(value - drawn)
        for sample, values in zip(samples, scored, strict=True)
        for value, drawn in zip(values, sample.logprobs, strict=True)
    )


def _measure_torch(
    folder: str,
    rounds: int,
    quick: bool,
    progress: Progress,
    figures: dict[str, float],
    peers: dict[str, float],
) -> None:
    count = 16 if quick else 64
    # Four lengths of prompts that ask for an order of digits; every fourth prompt is a product.
    digits = ("315", "31524", "3152407", "315240768")
    texts = tuple(
        f"q{11 + index}*34=" if index % 4 == 3 else f"x{digits[index // 4 % 4]}="
        for index in range(count)
    )
    work = Work(folder, texts, num_samples=8, max_new_tokens=32)
    prompts = tuple(Prompt(index, text) for index, text in enumerate(texts))
    options = GenerateOptions(work.num_samples, work.max_new_tokens)
    with ExitStack() as stack:
        store = stack.enter_context(tempfile.TemporaryDirectory())
        service = Service(folder, store, "torch", stack)
        peer = stack.enter_context(Peer("transformers", work))
        theirs, ours, ratio = _take_turns(
            peer,
            lambda index: service.generate(prompts, options, index),
            rounds,
            lambda index: progress(f"torch: round {index} of {rounds}"),
        )
    peers["transformers_tokens_per_s"] = theirs
    figures["torch_tokens_per_s"] = ours
    figures["torch_over_transformers"] = ratio


def _weight_updates(folder: str) -> dict[str, float]:
    """Seconds from an arena to weights that vLLM samples with, and per gigabyte of weights."""
    with EngineProcess(ModelSource(folder, is_trainable=False)) as torch_engine:
        arena = Arena(torch_engine.layout().nbytes)
        torch_engine.read_folder(folder, arena)
    source = ModelSource(folder, is_trainable=False, kind=EngineKind.VLLM)
    seconds: list[float] = []
    with EngineProcess(source) as engine:
        for _ in range(NUM_UPDATES + 1):
            start_s = time.perf_counter()
            engine.load(arena)
            seconds.append(time.perf_counter() - start_s)
        nbytes = engine.layout().nbytes
    arena.close()
    update_s = statistics.median(seconds[1:])
    return {
        "weight_update_s": update_s,
        "weight_update_bytes": nbytes,
        "weight_update_s_per_gb": update_s / (nbytes / 1e9),
    }
