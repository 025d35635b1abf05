"""New weights by vLLM's own weight-transfer protocol, straight from the arena of a state.

vLLM's own backends receive from another process, by NCCL or handles of CUDA memory. Here the arena
is mapped into the process that computes, so that what is transferred is an iterator over it; the
calls are the same on a CPU and on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from plexrl.errors import EngineError

BACKEND = "plexrl"
"""Name of the backend in vLLM's ``WeightTransferConfig``."""

Weights = Iterator[tuple[str, torch.Tensor]]
"""Names as in a checkpoint, with values."""


@cache
def register_backend() -> None:
    """Make the backend known to vLLM; called before an engine with it is made."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    WeightTransferEngineFactory.register_engine(BACKEND, _backend())


def update(llm: Any, weights: Weights, tag: str) -> None:  # noqa: ANN401 (vLLM is untyped here)
    """Load weights in place, and forget what was computed with those before.

    Parameters
    ----------
    llm
        ``vllm.LLM`` with this backend.
    weights
        All weights of the network.
    tag
        Version that vLLM reports from now on with what it draws.

    Raises
    ------
    EngineError
        A weight of the network was not among them, or vLLM still reports what was before.
    """
    llm.start_weight_update()
    llm.update_weights({"update_info": {"weights": weights}})
    llm.finish_weight_update(weight_version=tag)
    if not llm.reset_prefix_cache():
        raise EngineError(
            f"vLLM kept its prefix cache over new weights {tag!r}: a request still runs; restart "
            "the engine"
        )
    found = llm.get_weight_version()
    if found != tag:
        raise EngineError(
            f"vLLM reports weights {found!r} after {tag!r} was loaded; restart the engine"
        )


def _backend() -> type:
    from vllm.distributed.weight_transfer.base import WeightTransferEngine
    from vllm.model_executor.model_loader import reload

    class ArenaTransfer(WeightTransferEngine):  # type: ignore[misc]
        """Loads all weights of the network in one transfer."""

        init_info_cls = dict
        update_info_cls = dict
        supports_draft_weight_update = False

        def init_transfer_engine(self, init_info: dict[str, Any]) -> None:
            """Nothing is set up: the memory is mapped already."""

        def start_weight_update(self) -> None:
            """Let vLLM bring each layer into the form of a checkpoint."""
            reload.initialize_layerwise_reload(self.model)

        def update_weights(self, update_info: dict[str, Any]) -> None:
            """As vLLM's, which works with an accelerator only."""
            try:
                self.receive_weights(update_info)
            except BaseException:
                # Layers that got a part would take it for one of the next transfer.
                self.finish_weight_update()
                raise

        def receive_weights(self, update_info: dict[str, Any]) -> None:
            _load_all(self.model, update_info["weights"])

        def finish_weight_update(self) -> None:
            """Let vLLM bring each layer into the form it computes with."""
            reload.finalize_layerwise_reload(self.model, self.model_config)

        def shutdown(self) -> None:
            """Nothing was set up."""

    return ArenaTransfer


def _load_all(model: Any, weights: Weights) -> None:  # noqa: ANN401
    """Load; vLLM itself leaves a weight that it was not given as it was."""
    wanted = {name for name, _ in model.named_parameters()}
    missing = wanted - model.load_weights(weights)
    if missing:
        raise EngineError(
            f"vLLM got no new values of {', '.join(sorted(missing))}; the names of the weights do "
            "not fit this vLLM: take rollout_engine='torch' for this model"
        )
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
