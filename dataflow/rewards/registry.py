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


def resolve(reward: str | Verifier | Judge) -> Verifier | Judge:
    """Reward of a name; a function or judge is its own.

    Raises
    ------
    UnknownNameError
        Nobody registered the name, or it is none of these.
    """
    if not isinstance(reward, str):
        if callable(reward) or isinstance(reward, Judge):
            return reward
        raise UnknownNameError(
            f"reward {reward!r} is {type(reward).__name__}; give a name, a function of one sample, "
            "or a judge"
        )
    if reward not in _REWARDS:
        raise UnknownNameError(
            f"no reward is called {reward!r}; known are {', '.join(names())}, or give a function"
        )
    return _REWARDS[reward]
