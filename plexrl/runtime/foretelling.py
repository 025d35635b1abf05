"""Which rollout follows the training that begins: known at the scheduler, told to the service."""

from __future__ import annotations

from typing import Any

from dataflow.calls import LLMCall
from dataflow.phases import Phase
from dataflow.samples import Prompt
from plexrl.core.placement import model_and_phase
from plexrl.runtime.coordinator import Coordinator
from plexrl.runtime.gate import Gate
from plexrl.runtime.outbox import Outbox
from plexrl.services.lookahead import Foretold


class Foretelling:
    """Tells services of rollouts that wait for nothing but the training they are sent."""

    def __init__(self, gate: Gate, coordinator: Coordinator, outbox: Outbox) -> None:
        self._gate = gate
        self._coordinator = coordinator
        self._outbox = outbox

    def admitted(self, key: str, group: str, worker: str) -> None:
        """A function was sent to the worker of its group."""
        _, phase = model_and_phase(self._coordinator.ledger[key].op)
        if phase != Phase.TRAIN or self._is_wanted(group, key):
            return
        ledger = self._coordinator.ledger
        known = [k for k in self._gate.dependents(key) if k in ledger]
        following = {k: found for k in known if (found := self._gate.arguments(k, given=key))}
        if len(following) != 1:
            # One of several may not come next.
            return
        ((following_key, arguments),) = following.items()
        foretold = _foretold(following_key, arguments)
        # Another group has another engine.
        if foretold is not None and self._coordinator.groups_for(following_key) == (group,):
            self._outbox.foretell(worker, foretold)

    def _is_wanted(self, group: str, key: str) -> bool:
        """Whether another function waits for the group."""
        arbiter = self._coordinator.arbiter
        ahead = arbiter.ahead(group)
        return arbiter.num_waiting(group) > (ahead is not None and ahead.function.id == key)


def _foretold(key: str, arguments: tuple[Any, ...]) -> Foretold | None:
    """A rollout of prompts, by the arguments of its task; None if it is anything else."""
    match arguments:
        case (LLMCall(function=Phase.ROLLOUT) as call, _, tuple(prompts)) if all(
            isinstance(prompt, Prompt) for prompt in prompts
        ):
            return Foretold(key, call, prompts)
    return None
