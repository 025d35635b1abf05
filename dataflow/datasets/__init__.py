"""Prompt sources: deterministic streams of prompts read by cursor."""

from dataflow.datasets.calculator import CalculatorPrompts
from dataflow.datasets.jsonl import JsonlPrompts
from dataflow.datasets.letters import LetterPrompts
from dataflow.datasets.protocol import PromptSource

__all__ = ["CalculatorPrompts", "JsonlPrompts", "LetterPrompts", "PromptSource"]
