import os
import shutil
import signal
import threading

import pytest

from dataflow.environments import LateEnvironment, ProcessLimits, PythonTool, node, step
from dataflow.environments.python_process import evaluate
from dataflow.errors import ToolError
from dataflow.isolated import CallEnd
from dataflow.processes import AnsweringProcess
from dataflow.samples import EndReason
from dataflow.waiting import LogNormalDelay

HANGS = "<9**9**9**9>"
IMPATIENT = PythonTool(limits=ProcessLimits(wall_s=0.1))


@pytest.fixture
def make_call(make_sample):
    def make(text, sample=0, **more):
        fields = {"end": EndReason.TOOL_CALL, "turn": 1, **more}
        return make_sample(text, prompt="q12*34=", sample=sample, **fields)

    return make


@pytest.fixture
def started(monkeypatch):
    """Processes the tool started."""
    processes = []
    start = AnsweringProcess.__init__

    def remembering(self, *arguments, **settings):
        start(self, *arguments, **settings)
        processes.append(self)

    monkeypatch.setattr(AnsweringProcess, "__init__", remembering)
    return processes


def is_running(process):
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_call_is_answered_and_the_episode_goes_on(make_call):
    (answered,) = PythonTool().step([make_call("<12*34>")])
    assert answered.pending_text == "408|"
    assert answered.is_active
    assert answered.end is EndReason.TOOL_CALL


def test_the_last_call_of_a_completion_counts(make_call):
    (answered,) = PythonTool().step([make_call("<1+1>2|<2+2>")])
    assert answered.pending_text == "4|"


@pytest.mark.parametrize(
    "change", [{"is_active": False}, {"end": EndReason.STOP}, {"end": EndReason.LENGTH}]
)
def test_samples_that_called_nothing_stay_as_they_are_and_cost_no_process(
    make_call, started, change
):
    samples = (make_call("<12*34>", **change),)
    assert PythonTool().step(samples) == samples
    assert started == []


@pytest.mark.parametrize(
    "text",
    [
        "<12*>",
        "<>",
        "12*34>",
        "<1/0>",
        "<__import__('os')>",
        "<'a'*9>",
        "<a>",
        "<[1][0]>",
        "<9**99>",
    ],
)
def test_a_call_without_a_value_ends_the_episode(make_call, text):
    (ended,) = PythonTool().step([make_call(text)])
    assert (ended.end, ended.is_active) == (EndReason.TOOL_ERROR, False)
    assert ended.pending_text == ""


@pytest.mark.slow
def test_a_call_that_hangs_ends_its_own_sample_only(make_call, started):
    samples = [make_call(text, row) for row, text in enumerate(["<1+1>", HANGS, "<2+2>", HANGS])]
    stepped = IMPATIENT.step(samples)
    assert [s.end for s in stepped] == [
        EndReason.TOOL_CALL,
        EndReason.TOOL_TIMEOUT,
        EndReason.TOOL_CALL,
        EndReason.TOOL_TIMEOUT,
    ]
    assert [s.pending_text for s in stepped] == ["2|", "", "4|", ""]
    assert len(started) == 2
    assert not any(map(is_running, started))


@pytest.mark.slow
def test_a_call_that_takes_too_much_memory_ends_its_own_sample_only(make_call):
    tool = PythonTool(limits=ProcessLimits(wall_s=20, memory_bytes=64 << 20))
    stepped = tool.step([make_call("<1<<(1<<40)>"), make_call("<2+2>", 1)])
    assert [s.end for s in stepped] == [EndReason.TOOL_ERROR, EndReason.TOOL_CALL]


def test_a_process_that_dies_is_replaced(make_call, started, monkeypatch):
    ask = AnsweringProcess.ask

    def killing(self, request):
        if request == b'"1+1"\n':
            os.kill(self.pid, signal.SIGKILL)
        return ask(self, request)

    monkeypatch.setattr(AnsweringProcess, "ask", killing)
    stepped = PythonTool().step([make_call("<1+1>"), make_call("<2+2>", 1)])
    assert [s.end for s in stepped] == [EndReason.TOOL_ERROR, EndReason.TOOL_CALL]
    assert len(started) == 3


def test_nothing_is_left_running(make_call, started):
    PythonTool().step([make_call("<1+1>"), make_call("<2+2>", 1), make_call("<1+1>", 2)])
    assert len(started) == 1
    assert not is_running(started[0])


def test_the_tool_works_in_any_thread(make_call):
    stepped = []
    thread = threading.Thread(
        target=lambda: stepped.extend(PythonTool().step([make_call("<2*3>")]))
    )
    thread.start()
    thread.join()
    assert stepped[0].pending_text == "6|"


@pytest.mark.slow
def test_the_kernel_ends_a_call_that_its_parent_forgot():
    (answer,) = evaluate(["9**9**9**9"], ProcessLimits(wall_s=30, cpu_s=0))
    assert (answer.end, answer.reason) == (CallEnd.TIMED_OUT, "killed after 0 s of CPU")


def test_an_interpreter_that_cannot_start_is_named(monkeypatch, make_call):
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(ToolError, match="/nowhere/python cannot be started"):
        PythonTool().step([make_call("<1+1>")])


def test_an_interpreter_that_ends_at_once_is_named(monkeypatch, make_call):
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    with pytest.raises(ToolError, match=r"did not get ready: the process died with exit status 1"):
        PythonTool().step([make_call("<1+1>")])


def test_a_late_tool_waits_only_for_active_samples(make_call):
    waits = []
    late = LateEnvironment(PythonTool(), LogNormalDelay(0.2, 0.0), waits.append)
    late.step([make_call("x", is_active=False)], 0)
    assert waits == []
    (answered,) = late.step([make_call("<1+1>")], 0)
    assert (answered.pending_text, waits) == ("2|", [0.2])


class Losing:
    def step(self, samples, _iteration):
        return samples[1:]


class Broken:
    def step(self, _samples, _iteration):
        raise KeyError("x")


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        (Losing(), "Losing gave back 0 samples for 1"),
        (Broken(), "Broken, in iteration 0, raised KeyError"),
    ],
)
def test_a_wrong_environment_is_named(make_call, environment, problem):
    with pytest.raises(ToolError, match=problem):
        step(environment, [make_call("<1+1>")])


def test_a_tool_node_is_an_ordinary_task(make_call):
    made = node(PythonTool(), [make_call("<1+1>")], key="tool-x.1")
    assert not any(layer.annotations for layer in made.dask.layers.values())
    assert made.compute(scheduler="synchronous")[0].pending_text == "2|"
