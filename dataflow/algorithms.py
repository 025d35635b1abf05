"""Settings of the built-in pipeline, and the published algorithms as sets of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dataflow import advantages
from dataflow.advantages import Estimator
from dataflow.calls import AGGREGATION_NAMES, AUTOCAST_NAMES, KL_NAMES, LOSS_NAMES, Loss
from dataflow.elsewhere import NAMES_ELSEWHERE
from dataflow.environments import Environment
from dataflow.errors import PipelineError, UnknownNameError
from dataflow.ranges import BETAS, RANGES, are_betas
from dataflow.rewards import Judge, Verifier
from dataflow.schedules import SCHEDULES

GAE = "gae"
"""Advantage that needs a critic: the pipeline then trains one beside the actor."""


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """What the built-in pipeline does in every iteration."""

    reward: str | Verifier | Judge
    environment: Environment | None = None
    num_tool_turns: int = 0
    """Rollout turns after the first, each after one step of the environment."""
    num_samples: int = 8
    """Samples per prompt."""
    max_new_tokens: int = 8
    """Limit of tokens per turn."""
    temperature: float = 1.0
    top_p: float = 1.0
    """See `dataflow.calls.GenerateOptions`, as for `top_k`."""
    top_k: int = 0
    stop: tuple[str, ...] = ()
    advantage: str | Estimator = "grpo_batch"
    """An estimator, or ``gae``: generalised advantage estimation with a critic."""
    loss: str | Loss = "grpo"
    lr: float = 2e-4
    """Step size of the first iteration, or after the warm-up."""
    lr_schedule: str = "linear"
    """``linear``: falls to 0 over the job; ``cosine``: the same along half a cosine;
    ``constant``."""
    warmup_iterations: int = 0
    """Iterations over which the step size rises."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    num_epochs: int = 1
    num_minibatches: int = 1
    aggregation: str = "token_mean"
    """See `dataflow.calls.TrainOptions`, as for the settings up to `is_checkpointed`."""
    kl_coef: float = 0.0
    """Weight of the distance to the reference: the first version of the model, or another."""
    kl_estimator: str = "k3"
    entropy_coef: float = 0.0
    importance_cap: float | None = None
    micro_batch_size: int | None = None
    autocast: str | None = None
    is_checkpointed: bool = False
    dynamic_rounds: int = 1
    """With more than 1, prompts whose samples all earn the same are replaced by fresh ones, in
    up to that many rollouts (dynamic sampling: DAPO, arXiv 2503.14476)."""
    overlong_buffer_tokens: int = 0
    """Tokens before the limit over which the reward falls by up to 1 (overlong shaping: DAPO);
    0: no such penalty."""
    reference: str | None = None
    """Folder of the model that `kl_coef` holds the actor to; the actor's own by default."""
    critic: str | None = None
    """Folder of the critic's first version; by default the actor's, with a value head of zeros."""
    critic_lr: float = 1e-3
    """Step size of the critic, constant."""
    discount: float = 1.0
    """Of later rewards, per token (γ)."""
    gae_lambda: float = 0.95
    """How far advantages look past the critic (λ, arXiv 1506.02438)."""
    value_clip: float = 0.2
    """How far a critic's estimates may move in one iteration before the loss ignores it."""

    @property
    def max_completion_tokens(self) -> int:
        """Limit of tokens the policy draws per sample, all turns together."""
        return self.max_new_tokens * (1 + self.num_tool_turns)


_PPO_CLIP = {"clip_low": 0.2, "clip_high": 0.2}

PRESETS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "grpo": {"advantage": "grpo", "aggregation": "sequence_mean", **_PPO_CLIP},
        "dr_grpo": {"advantage": "centered", "aggregation": "fixed_length", **_PPO_CLIP},
        "dapo": {"advantage": "grpo", "dynamic_rounds": 3, "clip_low": 0.2, "clip_high": 0.28},
        "rloo": {"advantage": "rloo", "loss": "reinforce", "aggregation": "sequence_sum"},
        "reinforce_pp": {"advantage": "reinforce_pp", **_PPO_CLIP},
        "gspo": {
            "advantage": "grpo",
            "loss": "gspo",
            "aggregation": "sequence_mean",
            "clip_low": 3e-4,
            "clip_high": 4e-4,
        },
        "cispo": {"advantage": "grpo", "loss": "cispo", "clip_low": 1.0, "clip_high": 4.0},
        "ppo": {"advantage": GAE, **_PPO_CLIP},
    }
)
"""Algorithm → the settings that make it, as its paper (docs/algorithms.md) has them."""

_DECIDED_BY_TASK = {
    "reward",
    "environment",
    "num_tool_turns",
    "num_samples",
    "max_new_tokens",
    "stop",
}
SETTINGS = tuple(sorted(set(GrpoSettings.__dataclass_fields__) - _DECIDED_BY_TASK))
"""Settings of `grpo` that tasks leave to the user."""

_WORDS: Mapping[str, tuple[str | None, ...]] = {
    "advantage": (*advantages.names(), GAE),
    "aggregation": AGGREGATION_NAMES,
    "autocast": AUTOCAST_NAMES,
    "kl_estimator": KL_NAMES,
    "loss": LOSS_NAMES,
    "lr_schedule": SCHEDULES,
}
_FUNCTIONS = {"advantage", "loss"}
_FOLDERS = {"critic", "reference"}

_COMPARES_SAMPLES = {"centered", "grpo", "grpo_batch", "reinforce_pp_baseline", "rloo"}
"""Advantages that are 0 where a prompt has one sample."""


def preset(name: str | None) -> dict[str, object]:
    """Settings of a published algorithm; none for None.

    Raises
    ------
    UnknownNameError
        There is no such algorithm.
    """
    if name is None:
        return {}
    if not isinstance(name, str) or name not in PRESETS:
        raise UnknownNameError(
            f"no algorithm is called {name!r}; known are {', '.join(sorted(PRESETS))}"
        )
    return dict(PRESETS[name])


def settings_of(
    fixed: Mapping[str, object], algorithm: str | None, settings: Mapping[str, object]
) -> GrpoSettings:
    """What the task fixes, then what the algorithm says where the user says nothing.

    Raises
    ------
    UnknownNameError
        A setting, an algorithm or a name in a setting does not exist.
    PipelineError
        A setting is out of range.
    """
    check_settings(settings)
    merged = {**fixed, **preset(algorithm), **settings}
    found = GrpoSettings(**merged)  # type: ignore[arg-type]
    if isinstance(found.advantage, str) and found.advantage in _COMPARES_SAMPLES:
        _check_differences(found)
    return found


def _check_differences(settings: GrpoSettings) -> None:
    """Samples that are compared must be able to differ."""
    lesson = (
        f"but the advantage {settings.advantage!r} compares samples of one prompt, so that none "
        "would ever teach anything; give"
    )
    if settings.num_samples == 1:
        raise PipelineError(f"grpo: num_samples is 1, {lesson} at least 2")
    if settings.temperature == 0 or settings.top_k == 1:
        name = "temperature" if settings.temperature == 0 else "top_k"
        remedy = "a temperature above 0, such as 1" if name == "temperature" else "0 or more than 1"
        raise PipelineError(f"grpo: {name} is {getattr(settings, name)!r}, {lesson} {remedy}")


def check_settings(settings: Mapping[str, object]) -> None:
    """Check settings of `dataflow.pipelines.grpo`.

    Raises
    ------
    UnknownNameError
        A setting, or a name in one, does not exist; the message lists what there is.
    PipelineError
        A setting is out of range, or of another kind.
    """
    for name, value in settings.items():
        if name in NAMES_ELSEWHERE:
            raise UnknownNameError(
                f"grpo has no setting {name!r}; what TRL or verl calls so is "
                f"{NAMES_ELSEWHERE[name]!r} here (docs/from-trl-and-verl.md)"
            )
        if name not in SETTINGS:
            raise UnknownNameError(
                f"grpo has no setting {name!r}; its settings are {', '.join(SETTINGS)}"
            )
        if name in _WORDS:
            _check_word(name, value)
        elif wanted := _wanted(name, value):
            raise PipelineError(f"grpo: {name} is {value!r}; give {wanted}")


def _check_word(name: str, value: object) -> None:
    """A setting that is one of a few words, or a function where that may be."""
    if callable(value) and name in _FUNCTIONS:
        return
    if name == "advantage" and isinstance(value, str) and value != GAE:
        advantages.resolve(value)
        return
    if value not in _WORDS[name]:
        known = ", ".join(map(repr, _WORDS[name]))
        function = ", or give a function" if name in _FUNCTIONS else ""
        raise UnknownNameError(f"grpo has no {name} {value!r}; known are {known}{function}")


def _wanted(name: str, value: object) -> str:
    """What to give in place of a value that is none of the setting's; empty if it is."""
    if name in RANGES:
        return "" if value in RANGES[name] else str(RANGES[name])
    if name == "betas":
        return "" if are_betas(value) else BETAS
    if name in _FOLDERS:
        is_folder = value is None or (isinstance(value, str) and value)
        return "" if is_folder else "the path of a Hugging Face folder, as text"
    return "" if isinstance(value, bool) else "True or False"
