"""Rewards by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dataflow.errors import UnknownNameError
from dataflow.rewards.answers import ExactAnswer
from dataflow.rewards.code import CodeTests
from dataflow.rewards.isolated import IsolatedReward
from dataflow.rewards.orders import ORDERS, OrderVerifier
from dataflow.rewards.protocol import Judge, Verifier
from dataflow.rewards.texts import JsonSchemaReward, MathReward, RegexReward
from dataflow.rewards.trl import TrlReward, is_trl
from dataflow.rewards.verl import VerlReward, is_verl

_REWARDS: dict[str, Verifier | Judge] = {
    **{order: OrderVerifier(order) for order in ORDERS},
    "exact": ExactAnswer(),
    "calculator": ExactAnswer(mark="|"),
    "code": CodeTests(),
    "math": IsolatedReward(MathReward()),
}

_OF_ONE_VALUE: dict[str, Callable[[Any], Verifier]] = {
    "exact": ExactAnswer,
    "json_schema": JsonSchemaReward,
    "regex": RegexReward,
}
"""Rewards that a file describes by a name and a value."""


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

    One that is written for TRL or verl is called as there.

    Raises
    ------
    UnknownNameError
        Nobody registered the name, or it is none of these.
    """
    if not isinstance(reward, str):
        if is_trl(reward) and not isinstance(reward, Judge):
            return TrlReward((reward,))
        if is_verl(reward):
            return VerlReward(reward)
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


def described(reward: object) -> Verifier | Judge:
    """Reward as a job file describes it: a name, a name with a value, or a function.

    Functions of one sample, and patterns, run in a process that can be killed.

    Parameters
    ----------
    reward
        ``"math"``, ``{"regex": "…"}``, or what `resolve` takes.

    Raises
    ------
    UnknownNameError
        There is no such reward.
    DataError
        The value is none of the reward.
    """
    if isinstance(reward, Mapping):
        return _of_value(reward)
    judge = resolve(reward)  # type: ignore[arg-type]
    if isinstance(reward, str) or isinstance(judge, Judge):
        return judge
    return IsolatedReward(judge)


def _of_value(reward: Mapping[object, object]) -> Verifier | Judge:
    name, *others = reward or ("",)
    if others or not isinstance(name, str) or name not in _OF_ONE_VALUE:
        raise UnknownNameError(
            f"reward {dict(reward)!r} is none; give one of {', '.join(sorted(_OF_ONE_VALUE))} with "
            f"its value, or one of the names {', '.join(names())}"
        )
    found = _OF_ONE_VALUE[name](reward[name])
    # A pattern may take for ever on what a policy writes.
    return IsolatedReward(found) if isinstance(found, RegexReward) else found
