"""Prompt sources: deterministic streams of prompts read by cursor."""

from dataflow.datasets.calculator import CalculatorPrompts
from dataflow.datasets.chat import ChatTemplate
from dataflow.datasets.files import prompts_at
from dataflow.datasets.jsonl import JsonlPrompts
from dataflow.datasets.letters import LetterPrompts
from dataflow.datasets.protocol import PromptSource
from dataflow.datasets.reasoning_gym import ReasoningGymPrompts
from dataflow.datasets.records import Fields, RecordPrompts, prompts_of
from dataflow.datasets.tables import hub_prompts, parquet_prompts

__all__ = [
    "CalculatorPrompts",
    "ChatTemplate",
    "Fields",
    "JsonlPrompts",
    "LetterPrompts",
    "PromptSource",
    "ReasoningGymPrompts",
    "RecordPrompts",
    "hub_prompts",
    "parquet_prompts",
    "prompts_at",
    "prompts_of",
]
