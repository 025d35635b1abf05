"""Tools of somebody's own: one bad call ends one sample, and says why."""

import os
import time

import pytest

from dataflow.environments import FunctionTool, ProcessLimits, PythonTool, step
from dataflow.errors import DataError, ToolError
from dataflow.rewards import score
from dataflow.samples import EndReason, Rewards, table


def oracle(question):
    """A tool that answers, hangs, raises, dies or eats, as it is asked."""
    if question == "hang":
        time.sleep(60)
    if question == "raise":
        raise LookupError("no such page")
    if question == "die":
        os.abort()
    if question == "eat":
        return len(" " * 10**11)
    return {"pid": os.getpid(), "long": "x" * 100}.get(question, question.upper())


@pytest.fixture
def calls(make_sample):
    def make(*questions):
        fields = {"end": EndReason.TOOL_CALL, "turn": 1}
        texts = [f"[[{question}]]" for question in questions]
        return [make_sample(text, sample=row, **fields) for row, text in enumerate(texts)]

    return make


def tool(**changes):
    return FunctionTool(oracle, "[[", "]]", "\n", **changes)


def test_a_function_answers_behind_the_call(calls):
    answered = step(tool(), calls("france", "spain"))
    assert [s.pending_text for s in answered] == ["FRANCE\n", "SPAIN\n"]
    assert all(s.is_active and not s.problem for s in answered)


def test_one_process_of_its_own_serves_a_batch(calls):
    answers = {s.pending_text for s in step(tool(), calls("pid", "x", "pid"))} - {"X\n"}
    assert len(answers) == 1
    assert answers != {f"{os.getpid()}\n"}


@pytest.mark.slow
def test_a_bad_call_ends_its_own_sample_and_says_why(calls):
    limits = ProcessLimits(wall_s=1.0, memory_bytes=2 << 30)
    asked = calls("a", "hang", "raise", "die", "eat", "long", "b")
    stepped = step(tool(limits=limits, max_answer_chars=50), asked)
    assert [s.pending_text for s in stepped] == ["A\n", "", "", "", "", "", "B\n"]
    assert [s.end for s in stepped[1:6]] == [
        EndReason.TOOL_TIMEOUT,
        *(EndReason.TOOL_ERROR,) * 4,
    ]
    problems = [s.problem for s in stepped[1:6]]
    assert problems[:3] == [
        "killed after 1 s",
        "LookupError: no such page",
        "the process died with exit status -6",
    ]
    assert problems[3].startswith("MemoryError")
    assert problems[4] == "the answer has 100 characters, more than 50"
    assert dict(score(lambda _: 0.0, stepped).metrics)["failed_tools"] == 5


def test_the_table_says_why_a_tool_ended_a_sample(calls):
    stepped = step(PythonTool("[[", "]]"), calls("1/0", "1+1"))
    rows = table(stepped, Rewards((0.0, 1.0), ("no answer", "")))
    assert [row["reason"] for row in rows] == [
        "ZeroDivisionError: division by zero; no answer",
        "",
    ]


def test_a_function_that_cannot_be_loaded_is_an_error_of_the_tool(calls):
    with pytest.raises(ToolError, match="the process of the tool cannot be used"):
        step(FunctionTool(Unloadable(), "[[", "]]"), calls("a"))


class Unloadable:
    def __call__(self, _question):
        raise NotImplementedError

    def __reduce__(self):
        return __import__, ("no_such_module_anywhere",)


@pytest.mark.parametrize("given", [("oracle",), (oracle, ""), (oracle, "<", "")])
def test_a_tool_that_nobody_can_call_is_refused(given):
    with pytest.raises(DataError, match="give a function of a text, and two texts"):
        FunctionTool(*given)
