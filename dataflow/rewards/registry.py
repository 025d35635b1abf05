"""Rewards by name."""

from __future__ import annotations

from dataflow.errors import UnknownNameError
from dataflow.rewards.answers import ExactAnswer
from dataflow.rewards.orders import ORDERS, OrderVerifier
from dataflow.rewards.protocol import Judge, Verifier

_REWARDS: dict[str, Verifier | Judge] = {
    **{order: OrderVerifier(order) for order in ORDERS},
    "exact": ExactAnswer(),
    "calculator": ExactAnswer(mark="|"),
}


def names() -> tuple[str, ...]:
    """Registered names, sorted."""
    return tuple(sorted(_REWARDS))


def register(name: str, reward: Verifier | Judge) -> None:
    """Give a reward a name in this process.

    Raises
    ------
    UnknownNameError
        The name stands for another reward already.
    """
    if _REWARDS.get(name, reward) is not reward:
        raise UnknownNameError(
            f"reward {name!r} is taken by {_REWARDS[name]!r}; register under another name"
        )
    _REWARDS[name] = reward


def resolve(name: str) -> Verifier | Judge:
    """Reward of a name.

    Raises
    ------
    UnknownNameError
        Nobody registered it.
    """
    if name not in _REWARDS:
        raise UnknownNameError(
            f"no reward is called {name!r}; known are {', '.join(names())}, or give a function"
        )
    return _REWARDS[name]
