"""The gate against a real Dask scheduler: tasks are held, admitted, failed and kept apart."""

import asyncio

import dask
import pytest
from dask import delayed
from distributed import get_worker
from distributed.diagnostics.plugin import SchedulerPlugin

from dataflow.calls import GenerateOptions, LLMCall
from dataflow.nodes import llm_node
from dataflow.phases import Phase
from dataflow.samples import Prompt
from plexrl.errors import JobError
from plexrl.runtime.gate import Gate, group_of

TIMEOUT_S = 1000.0


class Holder(SchedulerPlugin):
    """Holds annotated tasks until the test asks for them."""

    name = "holder"

    async def start(self, scheduler):
        self.scheduler = scheduler
        self.gate = Gate(scheduler)
        self.addresses = {
            group_of(ws.resources): address for address, ws in scheduler.workers.items()
        }
        self.gate.add_ordinary_worker(self.addresses[None])
        scheduler.no_workers_timeout = TIMEOUT_S
        scheduler.handlers["holder"] = self.command

    def update_graph(self, _scheduler, *, tasks, annotations, **_kwargs):
        held = annotations.get("held", {})
        for key in held:
            self.gate.hold(key)
        self.gate.keep_off_groups(key for key in tasks if key not in held)

    async def command(self, name, key, address="g"):
        wanted = {"gone": None, "arguments": "waiting"}.get(name, "no-worker")
        for _ in range(200):
            if self.gate.state(key) == wanted:
                break
            await asyncio.sleep(0.01)
        if name == "arguments":
            return self.gate.arguments(key, given="h7")
        if name == "admit":
            return self.gate.admit(key, "g", self.addresses.get(address, address))
        if name == "time out":
            self.scheduler.unrunnable[self.scheduler.tasks[key]] -= 2 * TIMEOUT_S
            self.scheduler._check_no_workers()
        if name == "keep":
            self.scheduler.unrunnable[self.scheduler.tasks[key]] -= 2 * TIMEOUT_S
            self.gate.keep_waiting([key])
            self.scheduler._check_no_workers()
        if name == "adaptive":
            asked = self.scheduler.handlers["adaptive_target"](target_duration="1s")
            return asked, type(self.scheduler).adaptive_target(self.scheduler, "1s")
        if name == "fail":
            self.gate.fail(key, JobError("no such job"))
        return self.gate.state(key)


@pytest.fixture(scope="module")
def client(dask_client):
    dask_client.register_plugin(Holder())
    return dask_client


def command(client, name, key, **kwargs):
    async def call():
        return await client.scheduler.holder(name=name, key=key, **kwargs)

    return client.sync(call)


def where(*_inputs):
    return group_of(get_worker().state.total_resources)


def held(key, *inputs):
    with dask.annotate(held=True):
        return delayed(where, pure=False)(*inputs, dask_key_name=key)


def test_a_held_task_waits_until_it_is_admitted_and_then_runs_on_its_group(client):
    future = client.compute(held("h1"), optimize_graph=False)
    assert command(client, "look", "h1") == "no-worker"
    assert not future.done()
    assert command(client, "admit", "h1") is True
    assert future.result(timeout=10) == "g"


def test_a_task_that_was_not_ready_or_has_no_worker_is_not_admitted(client):
    assert command(client, "admit", "never-heard-of") is False
    future = client.compute(held("h2"), optimize_graph=False)
    assert command(client, "admit", "h2", address="tcp://127.0.0.1:1") is False
    assert command(client, "look", "h2") == "no-worker"
    assert command(client, "admit", "h2") is True
    assert future.result(timeout=10) == "g"


def test_ordinary_tasks_stay_off_the_group(client):
    nodes = [delayed(where, pure=False)(dask_key_name=f"ordinary-{i}") for i in range(20)]
    assert client.gather(client.compute(nodes, optimize_graph=False)) == [None] * 20


def test_a_failed_task_takes_along_what_depends_on_it(client):
    future = client.compute(delayed(where, pure=False)(held("h3"), dask_key_name="after-h3"))
    command(client, "fail", "h3")
    with pytest.raises(JobError, match="no such job"):
        future.result(timeout=10)


def test_held_tasks_outlive_dasks_limit_for_tasks_without_a_worker(client):
    lost = client.compute(held("h5"), optimize_graph=False)
    assert command(client, "time out", "h5") == "erred"
    assert lost.exception(timeout=10) is not None
    kept = client.compute(held("h6"), optimize_graph=False)
    assert command(client, "keep", "h6") == "no-worker"
    assert command(client, "admit", "h6") is True
    assert kept.result(timeout=10) == "g"


def test_what_a_task_is_given_is_known_while_it_waits_for_one_result_only(client):
    prompts = (Prompt(0, "a"), Prompt(1, "b", meta={"digits": [1, 2]}))
    call = LLMCall("job", "actor", Phase.ROLLOUT, 1, 0, 1, 0, GenerateOptions())
    (train,) = client.compute([held("h7")], optimize_graph=False)
    next_one = llm_node(call, "next", train, prompts)
    later = llm_node(call, "later", train, next_one)
    futures = client.compute([next_one, later], optimize_graph=False)
    found = command(client, "arguments", "next")
    assert (found[0], found[2:]) == (call, (prompts,))
    assert command(client, "arguments", "later") == ()
    client.cancel(futures, force=True)
    train.release()


def test_a_held_task_can_be_cancelled(client):
    future = client.compute(held("h4"), optimize_graph=False)
    assert command(client, "look", "h4") == "no-worker"
    future.release()
    del future
    assert command(client, "gone", "h4") is None


@pytest.mark.parametrize(
    ("resources", "group"), [({}, None), ({"GPU": 1}, None), ({"llm:a": 1, "GPU": 8}, "a")]
)
def test_resources_say_which_group_a_worker_owns(resources, group):
    assert group_of(resources) == group


def test_held_tasks_ask_for_no_more_workers(client):
    with dask.annotate(held=True):
        held = [delayed(int)(number, dask_key_name=f"held-{number}") for number in range(40)]
    futures = client.compute(held, optimize_graph=False)
    for future in futures:
        assert command(client, "state", future.key) == "no-worker"
    asked, dask_would = command(client, "adaptive", futures[0].key)
    assert asked <= 2
    assert dask_would > 2
    assert command(client, "state", futures[0].key) == "no-worker"
