"""Tasks by name: prompts, a verifier and the settings they are known to learn with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from dataflow.datasets import (
    CalculatorPrompts,
    ChatTemplate,
    Fields,
    LetterPrompts,
    PromptSource,
    ReasoningGymPrompts,
    RecordPrompts,
    prompts_at,
)
from dataflow.environments import Environment, LateEnvironment, PythonTool
from dataflow.errors import DataError, UnknownNameError
from dataflow.rewards import (
    ExactAnswer,
    IsolatedReward,
    Judge,
    LateJudge,
    OrderVerifier,
    ReasoningGymReward,
    Verifier,
    described,
)
from dataflow.rewards.orders import ORDERS
from dataflow.rewards.scoring import name_of
from dataflow.waiting import LogNormalDelay


@dataclass(frozen=True, slots=True)
class Task:
    """What a policy is asked, and who says whether it was right."""

    name: str
    description: str
    """One line for tables: what is verified, and by whom."""
    base: str
    """Kind of the tiny base model that has room to learn it: ``letters`` or ``calculator``."""
    prompts: Callable[[int], PromptSource]
    """Seed → prompt source."""
    reward: Callable[[int], Verifier | Judge]
    """Seed → who judges."""
    held_out: Callable[[int], PromptSource] | None = None
    """Seed → prompts to be measured on; None: `prompts` of another seed."""
    environment: Callable[[int], Environment] | None = None
    """Seed → who answers between turns; None for single-turn tasks."""
    num_tool_turns: int = 0
    """How often the environment answers in an episode."""
    max_new_tokens: int = 8
    """Limit of tokens the policy draws per turn."""
    stop: tuple[str, ...] = ()
    """Texts that end a turn."""
    num_prompts: int = 16
    """Prompts per iteration that the task is known to learn with."""
    num_samples: int = 8
    """Samples per prompt that the task is known to learn with."""
    hints_s: Mapping[str, float] = field(default_factory=dict)
    """Op → expected seconds with the tiny base model on one core."""


def names() -> tuple[str, ...]:
    """Registered names, sorted."""
    return tuple(sorted(_TASKS))


def register(name: str, factory: Callable[..., Task]) -> None:
    """Give a task a name in this process; keyword parameters of the factory are its options.

    Raises
    ------
    UnknownNameError
        The name stands for another task already.
    """
    if _TASKS.get(name, factory) is not factory:
        raise UnknownNameError(f"task {name!r} is taken; register under another name")
    _TASKS[name] = factory


def task(name: str, **options: object) -> Task:
    """Task of a name.

    Parameters
    ----------
    name
        Registered name.
    **options
        Options of the task, e.g. ``length=6`` of the letter tasks.

    Raises
    ------
    UnknownNameError
        Nobody registered the name, or the task has no such option; the message lists what there is.
    DataError
        An option is out of range.
    """
    if name not in _TASKS:
        raise UnknownNameError(f"no task is called {name!r}; known are {', '.join(names())}")
    factory = _TASKS[name]
    known = tuple(inspect.signature(factory).parameters)
    for option in options:
        if option not in known:
            raise UnknownNameError(
                f"task {name!r} has no option {option!r}; its options are "
                f"{', '.join(known) or 'none'}"
            )
    try:
        return factory(**options)
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise DataError(
            f"task {name!r} cannot be made with {given}: {error}; give values of the kinds that "
            "its defaults have"
        ) from error


def _letters(order: str, length: int = 5) -> Task:
    """A letter task: the prompt's digits in one order."""
    LetterPrompts(length=length)
    return Task(
        name=order,
        description=f"{order}: {length} digits, share of right positions",
        base="letters",
        prompts=partial(LetterPrompts, length=length),
        reward=partial(_order_verifier, order),
        max_new_tokens=length + 3,
        hints_s={"actor.rollout.0": 0.10, "wait:actor.rollout.0": 0.02, "actor.train.0": 0.21},
    )


def _ascending(length: int = 5) -> Task:
    return _letters("ascending", length)


def _descending(length: int = 5) -> Task:
    return _letters("descending", length)


def _reversed(length: int = 5) -> Task:
    return _letters("reversed", length)


def _copy(length: int = 5) -> Task:
    return _letters("copy", length)


def _judged(
    order: str = "descending", median_s: float = 0.5, sigma: float = 0.5, length: int = 5
) -> Task:
    """A letter task whose judge answers late."""
    if order not in ORDERS:
        raise UnknownNameError(f"no order is called {order!r}; known are {', '.join(ORDERS)}")
    delay = LogNormalDelay(median_s, sigma)
    base = _letters(order, length)
    return replace(
        base,
        name="judged",
        description=f"{order} by a late judge ({delay})",
        reward=partial(_late_judge, order, median_s, sigma),
        hints_s={**base.hints_s, "wait:actor.rollout.0": delay.mean_s},
    )


def _calculator(
    smallest: int = 10, largest: int = 99, tool_median_s: float = 0.0, tool_sigma: float = 0.5
) -> Task:
    """Products with a Python process as the calculator; the tool may answer late."""
    CalculatorPrompts(smallest=smallest, largest=largest)
    delay = LogNormalDelay(tool_median_s, tool_sigma)
    late = f", late by {delay}" if tool_median_s else ""
    return Task(
        name="calculator",
        description=f"products, exact answer, Python process as tool{late}",
        base="calculator",
        prompts=partial(CalculatorPrompts, smallest=smallest, largest=largest),
        reward=_calculator_reward,
        environment=partial(_calculator_tool, tool_median_s, tool_sigma),
        num_tool_turns=1,
        max_new_tokens=8,
        stop=(">",),
        num_prompts=8,
        num_samples=8,
        hints_s={
            "actor.rollout.0": 0.06,
            "wait:actor.rollout.0": 0.10 + delay.mean_s,
            "actor.rollout.1": 0.06,
            "wait:actor.rollout.1": 0.02,
            "actor.train.0": 0.15,
        },
    )


def _order_verifier(order: str, seed: int) -> OrderVerifier:
    """Verifier of an order; it draws nothing."""
    del seed
    return OrderVerifier(order)


def _late_judge(order: str, median_s: float, sigma: float, seed: int) -> LateJudge:
    """Late judge of an order, its waits drawn from the job's seed."""
    return LateJudge(OrderVerifier(order), median_s, sigma, seed)


def _calculator_reward(seed: int) -> ExactAnswer:
    """Exact answer after the tool's output; it draws nothing."""
    del seed
    return ExactAnswer(mark="|")


def _calculator_tool(median_s: float, sigma: float, seed: int) -> Environment:
    """The calculator, late if a median is given."""
    if not median_s:
        return PythonTool()
    return LateEnvironment(PythonTool(), LogNormalDelay(median_s, sigma, seed))


def _puzzles(
    generator: str = "chain_sum",
    config: Mapping[str, object] | None = None,
    mark: str = "",
    suffix: str = "",
    max_new_tokens: int = 64,
    is_exact: bool = False,
) -> Task:
    """Puzzles of reasoning-gym with its own verifier, in a process that can be killed."""
    settings = dict(config or {})
    ReasoningGymPrompts(generator, config=settings)
    return Task(
        name=generator,
        description=f"reasoning-gym {generator}, {'gold answer' if is_exact else 'its verifier'}",
        base="letters",
        prompts=partial(_puzzle_prompts, generator, settings, suffix),
        reward=partial(_puzzle_reward, mark, is_exact),
        max_new_tokens=max_new_tokens,
    )


def _puzzle_prompts(
    generator: str, config: Mapping[str, object], suffix: str, seed: int
) -> PromptSource:
    return ReasoningGymPrompts(generator, seed=seed, config=config, suffix=suffix)


def _puzzle_reward(mark: str, is_exact: bool, seed: int) -> Judge:
    """The verifier; it draws nothing."""
    del seed
    return IsolatedReward(ReasoningGymReward(mark, is_exact))


def _data(
    path: str,
    reward: object = "exact",
    prompt: str = "prompt",
    answer: str = "answer",
    held_out: str | None = None,
    chat_of: str | None = None,
    max_new_tokens: int = 64,
) -> Task:
    """Prompts of a file or folder, with a reward by name or of the user's own."""
    read = partial(
        prompts_at,
        fields=Fields(prompt, answer),
        chat=None if chat_of is None else ChatTemplate.of_folder(chat_of),
    )
    judge = described(reward)
    return Task(
        name="data",
        description=f"{Path(path).name}, judged by {_told(reward)}",
        base="letters",
        prompts=partial(_seeded, read(path)),
        reward=partial(_the_judge, judge),
        held_out=None if held_out is None else partial(_seeded, read(held_out)),
        max_new_tokens=max_new_tokens,
    )


def _told(reward: object) -> str:
    """A reward in a word."""
    if isinstance(reward, Mapping):
        return str(next(iter(reward)))
    return reward if isinstance(reward, str) else name_of(reward)


def _seeded(source: RecordPrompts, seed: int) -> PromptSource:
    return replace(source, seed=seed)


def _the_judge(judge: Verifier | Judge, seed: int) -> Verifier | Judge:
    """A judge that draws nothing."""
    del seed
    return judge


_TASKS: dict[str, Callable[..., Task]] = {
    "ascending": _ascending,
    "calculator": _calculator,
    "copy": _copy,
    "data": _data,
    "descending": _descending,
    "judged": _judged,
    "reasoning_gym": _puzzles,
    "reversed": _reversed,
}
