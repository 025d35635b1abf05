"""A Python process that evaluates arithmetic line by line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence

from dataflow.errors import NotReadyError, ToolError
from dataflow.isolated import CallEnd, Outcome, unanswered
from dataflow.processes import AnsweringProcess, ProcessLimits, Silence, ask_all

_SERVER = r"""
import ast, json, resource, sys, time
memory, cpu = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
LEGAL = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)
print("ready", flush=True)
for line in sys.stdin:
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + cpu, hard))
    try:
        tree = ast.parse(json.loads(line), mode="eval")
        for part in ast.walk(tree):
            number = not isinstance(part, ast.Constant) or type(part.value) in (int, float)
            if not isinstance(part, LEGAL) or not number:
                raise ValueError(type(part).__name__ + " is not arithmetic")
        answer = {"value": str(eval(compile(tree, "<call>", "eval"), {"__builtins__": {}}))}
    except BaseException as error:
        answer = {"error": type(error).__name__ + ": " + str(error)}
    print(json.dumps(answer), flush=True)
"""


def evaluate(expressions: Sequence[str], limits: ProcessLimits) -> Iterator[Outcome]:
    """Values of arithmetic expressions, in their order, computed in processes with limits.

    Raises
    ------
    ToolError
        No process can be started.
    """
    requests = [json.dumps(expression).encode() + b"\n" for expression in expressions]
    try:
        for line in ask_all(lambda: start(limits), requests):
            yield _outcome(line)
    except NotReadyError as error:
        raise ToolError(
            f"the tool process {sys.executable} cannot be used: {error} (memory limit "
            f"{limits.memory_bytes} bytes); raise the memory limit or repair the interpreter"
        ) from error


def start(limits: ProcessLimits) -> AnsweringProcess:
    """A new process that evaluates one JSON text per line."""
    command = [sys.executable, "-S", "-I", "-c", _SERVER]
    return AnsweringProcess([*command, str(limits.memory_bytes), str(limits.cpu_s)], limits, env={})


def _outcome(line: bytes | Silence) -> Outcome:
    if isinstance(line, Silence):
        return unanswered(line)
    answer: dict[str, str] = json.loads(line)
    if "error" in answer:
        return Outcome(CallEnd.RAISED, reason=answer["error"])
    return Outcome(CallEnd.ANSWERED, answer["value"])
