"""What other libraries call the settings of this one, for those who come from there."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NAMES_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "adv_estimator": "advantage",
        "beta": "kl_coef",
        "bf16": "autocast",
        "entropy_coeff": "entropy_coef",
        "epsilon": "clip_low",
        "epsilon_high": "clip_high",
        "gamma": "discount",
        "grad_clip": "max_grad_norm",
        "gradient_checkpointing": "is_checkpointed",
        "kl_loss_coef": "kl_coef",
        "kl_loss_type": "kl_estimator",
        "lam": "gae_lambda",
        "learning_rate": "lr",
        "loss_agg_mode": "aggregation",
        "loss_type": "aggregation",
        "lr_scheduler_type": "lr_schedule",
        "max_completion_length": "max_new_tokens",
        "max_response_length": "max_new_tokens",
        "max_steps": "iterations",
        "num_generations": "num_samples",
        "num_iterations": "num_epochs",
        "per_device_train_batch_size": "micro_batch_size",
        "ppo_epochs": "num_epochs",
        "report_to": "trackers",
        "scale_rewards": "advantage",
        "total_training_steps": "iterations",
        "warmup_steps": "warmup_iterations",
    }
)
"""What TRL or verl calls a setting → its name here (docs/from-trl-and-verl.md)."""
