"""Verifiers of text: patterns, JSON schemas, mathematics, puzzles of reasoning-gym."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from dataflow.datasets.reasoning_gym import entry_of
from dataflow.errors import DataError
from dataflow.extras import load_extra
from dataflow.rewards.answers import gold_of, is_gold
from dataflow.samples import Sample


@dataclass(frozen=True, slots=True)
class RegexReward:
    """1 where a pattern is found; with a group named ``answer``, where that is the gold answer."""

    pattern: str
    """Regular expression of Python's `re`, searched for with DOTALL; the last match counts."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except (re.error, TypeError) as error:
            raise DataError(
                f"the pattern {self.pattern!r} is no regular expression ({error}); correct it"
            ) from error

    def __call__(self, sample: Sample) -> float:
        """Reward of one sample."""
        found = list(re.finditer(self.pattern, sample.text, re.DOTALL))
        if not found:
            return 0.0
        if "answer" not in found[-1].groupdict():
            return 1.0
        return float(is_gold(found[-1]["answer"] or "", sample))


@dataclass(frozen=True, slots=True)
class JsonSchemaReward:
    """1 where a completion is JSON that follows a schema, half where it is JSON at all."""

    schema: Mapping[str, object]
    """JSON schema, draft 2020-12."""

    def __post_init__(self) -> None:
        library = load_extra("jsonschema", "tasks", "a JSON schema reward")
        if not isinstance(self.schema, Mapping):
            raise DataError(f"the JSON schema is {self.schema!r}; give a mapping")
        try:
            library.Draft202012Validator.check_schema(dict(self.schema))
        except library.SchemaError as error:
            raise DataError(
                f"{self.schema!r} is no JSON schema ({error.message}); correct it"
            ) from error

    def prepare(self) -> None:
        """Import what it needs."""
        load_extra("jsonschema", "tasks", "a JSON schema reward")

    def __call__(self, sample: Sample) -> float:
        """Reward of one sample."""
        library = load_extra("jsonschema", "tasks", "a JSON schema reward")
        try:
            value = json.loads(sample.text)
        except (ValueError, RecursionError):
            # A policy may open brackets without end.
            return 0.0
        is_valid = library.Draft202012Validator(dict(self.schema)).is_valid(value)
        return 1.0 if is_valid else 0.5


@dataclass(frozen=True, slots=True)
class MathReward:
    """1 where math-verify finds the completion equal to the gold answer.

    math-verify's own time limits use signals, which work in the main thread only and elsewhere
    make every score silently 0; they are off here. Wrap the reward in
    `dataflow.rewards.IsolatedReward`, whose process is killed at its limit.
    """

    def prepare(self) -> None:
        """Import what it needs, and what that imports for its first formula."""
        library = load_extra("math_verify", "tasks", "a mathematics reward")
        library.parse("$1$", parsing_timeout=None)

    def __call__(self, sample: Sample) -> float:
        """Reward of one sample."""
        library = load_extra("math_verify", "tasks", "a mathematics reward")
        gold = library.parse(f"${gold_of(sample)}$", parsing_timeout=None, raise_on_error=True)
        if not gold:
            raise DataError(
                f"prompt {sample.prompt.index}: its gold answer {sample.prompt.answer!r} is no "
                "mathematics; correct the data set"
            )
        # What a policy writes may be anything: garbage is a wrong answer, not an error.
        found = library.parse(sample.text, parsing_timeout=None)
        return float(library.verify(gold, found, timeout_seconds=None))


@dataclass(frozen=True, slots=True)
class ReasoningGymReward:
    """The score of reasoning-gym's own verifier, in [0, 1].

    Where it raises on what a policy wrote (``prime_factorization`` does), the score is 0. With
    `is_exact` only the gold answer counts: ``number_sorting`` accepts numbers that are off by one,
    which policies learn to exploit.
    """

    mark: str = ""
    """Text after which the answer stands; where it does not occur, or is empty, the whole
    completion is the answer."""
    is_exact: bool = False

    def prepare(self) -> None:
        """Import what it needs."""
        load_extra("reasoning_gym", "tasks", "a reasoning-gym reward")

    def __call__(self, sample: Sample) -> float:
        """Reward of one sample."""
        text = (sample.text.rpartition(self.mark)[2] if self.mark else sample.text).strip()
        if self.is_exact:
            return float(is_gold(text, sample))
        entry = entry_of(sample.prompt)
        library = load_extra("reasoning_gym", "tasks", "a reasoning-gym reward")
        scorer = library.get_score_answer_fn(entry["metadata"]["source_dataset"])
        try:
            return float(scorer(answer=text, entry=entry))
        except ImportError:
            # No answer is to blame for a library that is missing.
            raise
        except Exception as error:  # noqa: BLE001 (a scorer that trips over garbage)
            return _wrong(error)


def _wrong(error: Exception) -> float:
    """Score of an answer the scorer cannot read."""
    del error
    return 0.0
