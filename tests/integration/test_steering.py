"""Operators pause, move, replay, cancel and drain; jobs learn the same, and groups are free."""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

import plexrl
from plexrl.cli.main import app
from plexrl.core.status import JobState
from plexrl.errors import JobError
from plexrl.runtime.run import Run
from solver.trace import Outcome
from tests.integration.rewards import DIGITS
from tests.integration.test_deaths import TIMEOUT_S, wait_for_iteration

pytestmark = pytest.mark.slow
ITERATIONS = 8


@pytest.fixture(scope="module")
def groups(tmp_path_factory, host_budget_bytes):
    store = tmp_path_factory.mktemp("steered")
    with plexrl.LocalCluster(groups=2, store=store, host_budget_bytes=host_budget_bytes) as cluster:
        yield cluster
        assert cluster.status().num_errors == 0


@pytest.fixture(scope="module")
def expected(groups, small_job, tmp_path_factory):
    run = groups.submit(small_job("undisturbed", iterations=ITERATIONS))
    run.result(TIMEOUT_S)
    return run.export(tmp_path_factory.mktemp("undisturbed") / "model")


@pytest.fixture
def submit(groups, small_job):
    def submit(name, reward=DIGITS, iterations=ITERATIONS):
        return groups.submit(small_job(name, iterations=iterations, reward=reward))

    return submit


def wait_until(run, condition):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition(run.status()):
        assert time.monotonic() < deadline, run.status()
        time.sleep(0.02)
    return run.status()


def is_ordered(cluster, run):
    """Whether the plan in force has an order with the job."""
    orders = cluster.status().plan.order.values()
    return any(entry.startswith(f"{run.name}:") for order in orders for entry in order)


def leases_of(cluster, job, op):
    return [lease for lease in cluster.trace().leases if (lease.job, lease.op) == (job, op)]


def told(cluster, *words):
    address = cluster.client.scheduler.address
    done = CliRunner().invoke(app, [*words, "--json", "--address", address])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["told"]


def rests(status):
    return status.state is JobState.PAUSED and not status.asked


@contextmanager
def opened_once_asked(held, run):
    """Let a job go on once something was asked of it: commands wait in the main thread."""

    def open_it():
        wait_until(run, lambda status: status.asked or rests(status))
        held.open()

    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(open_it)
        yield
        opening.result(TIMEOUT_S)


@pytest.mark.parametrize("now", [False, True], ids=["after its iteration", "at once"])
def test_a_paused_job_frees_its_group_and_goes_on_with_the_same_bits(
    groups, submit, expected, gate, now, tmp_path
):
    held = gate(2)
    run = submit(f"paused-{now}", held)
    wait_for_iteration(run, 2)
    words = ["--reason", "a demo needs the group", *(["--now"] if now else [])]
    with opened_once_asked(held, run):
        assert told(groups, "pause", run.name, "--wait", *words) == "done"
    status = run.status()
    assert rests(status)
    assert "a demo needs the group" in status.waits_for
    assert status.iteration < ITERATIONS
    held = [state for group in groups.status().groups for state in group.resident.get("host", ())]
    assert not [state for state in held if state.startswith(f"{run.name}/")]
    with pytest.raises(JobError, match="taken by a job that is paused"):
        submit(run.name)
    assert run.name in told(groups, "unpause", run.name)
    assert run.result(TIMEOUT_S).iteration == ITERATIONS
    assert run.export(tmp_path / "model") == expected
    assert [row["iteration"] for row in run.metrics()] == list(range(ITERATIONS))


def test_a_job_moves_to_another_group_and_its_iteration_is_replayed_when_asked(
    groups, submit, expected, gate, tmp_path
):
    last = gate(ITERATIONS - 1, name="last")
    held = gate(2, last)
    run = submit("moved", held)
    wait_for_iteration(run, 1)
    home = run.status().group
    (away,) = {group.name for group in groups.status().groups} - {home}
    assert away in run.move(away)
    held.open()
    wait_until(run, lambda status: status.group == away and not status.asked)
    wait_for_iteration(run, 5)
    assert "again" in told(groups, "cancel", run.name, "--iteration")
    last.open()
    assert run.result(TIMEOUT_S).iteration == ITERATIONS
    assert run.export(tmp_path / "model") == expected
    leases = [lease for lease in groups.trace().leases if lease.job == run.name]
    assert {lease.group for lease in leases if lease.iteration >= 0} == {home, away}


def test_a_cancelled_sample_ends_alone_and_its_job_goes_on(groups, submit, gate):
    held = gate(1)
    run = submit("sampling", held, iterations=4)
    # Of an iteration that is still to come, so that it is not over before it is asked for.
    assert "nothing is learned" in told(groups, "cancel", run.name, "--sample", "13", "2")
    held.open()
    assert run.result(TIMEOUT_S).iteration == 4
    ends = {(r["prompt_index"], r["sample_index"]): r["end"] for r in run.samples()}
    assert [sample for sample, end in ends.items() if end == "cancelled"] == [(13, 2)]
    assert len(ends) == 16
    assert [row.get("cancelled") for row in run.metrics()] == [None, None, None, 1.0]
    address = groups.client.scheduler.address
    looked = CliRunner().invoke(app, ["drawing", run.name, "-a", address, "--json"])
    assert json.loads(looked.stdout) == {"samples": run.drawing()} == {"samples": []}


def test_a_cancelled_job_gives_its_group_up_in_mid_rollout(groups, base):
    run = groups.submit(
        plexrl.grpo(
            model=base,
            task="ascending",
            iterations=2,
            name="long",
            num_prompts=32,
            num_samples=32,
            max_new_tokens=400,
            slowdown_limit=10.0,
        )
    )
    wait_until(run, lambda status: status.phase == "actor.rollout.0")
    run.cancel()
    wait_until(run, lambda _: leases_of(groups, "long", "actor.rollout.0"))
    (lease,) = leases_of(groups, "long", "actor.rollout.0")
    assert lease.outcome is Outcome.CANCELLED


def slow_loss(logprobs_BT, _old_BT, advantages_B, mask_BT):
    time.sleep(0.5)
    return -(logprobs_BT * mask_BT * advantages_B[:, None]).sum()


def test_a_cancelled_job_gives_its_group_up_in_mid_training(groups, base):
    run = groups.submit(
        plexrl.grpo(
            model=base,
            task="ascending",
            iterations=2,
            name="thorough",
            num_prompts=32,
            num_samples=16,
            micro_batch_size=1,
            loss=slow_loss,
            slowdown_limit=10.0,
        )
    )
    wait_until(run, lambda status: status.phase == "actor.train.0")
    wait_until(run, lambda _: any(group.held_for_s > 0.5 for group in groups.status().groups))
    run.cancel()
    # All of its 512 micro-batches would take four minutes.
    wait_until(run, lambda _: leases_of(groups, "thorough", "actor.train.0"))
    (lease,) = leases_of(groups, "thorough", "actor.train.0")
    assert lease.outcome is Outcome.CANCELLED
    assert lease.busy_s < 200


def test_an_export_survives_the_death_of_its_engine(groups, submit, tmp_path):
    run = submit("exported")
    run.result(TIMEOUT_S)
    (group,) = [group for group in groups.status().groups if group.name == run.status().group]
    os.kill(group.engine_pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        exported = pool.submit(run.export, tmp_path / "exported")
        wait_until(run, lambda _: any(g.holder == run.name for g in groups.status().groups))
        os.kill(group.engine_pid, signal.SIGKILL)
        assert len(exported.result(TIMEOUT_S)) == 64


def test_a_drained_group_empties_and_a_job_without_room_waits_and_says_why(
    groups, submit, expected, gate, tmp_path
):
    held = gate(2)
    run = submit("drained", held)
    wait_for_iteration(run, 1)
    home = run.status().group
    (away,) = {group.name for group in groups.status().groups} - {home}
    groups.drain(away, "new memory")
    assert run.name in told(groups, "drain", home, "--reason", "new memory")
    held.open()
    status = wait_until(run, lambda status: "draining" in status.asked)
    assert "new memory" in status.asked
    assert all(group.draining.startswith("drained") for group in groups.status().groups)
    with pytest.raises(JobError, match="draining"):
        submit("refused")
    groups.undrain(away)
    assert wait_until(run, lambda status: not status.asked).group == away
    groups.undrain(home)
    assert run.result(TIMEOUT_S).iteration == ITERATIONS
    assert run.export(tmp_path / "model") == expected


def test_an_applied_plan_moves_jobs_and_one_for_others_is_refused(
    groups, submit, expected, gate, tmp_path
):
    held = gate(2)
    run = submit("planned", held)
    home = run.status().group
    (away,) = {group.name for group in groups.status().groups} - {home}
    wait_until(run, lambda _: is_ordered(groups, run))
    plan = json.dumps(groups.plan()["in_force"]["plan"])
    path = tmp_path / "plan.json"
    path.write_text(plan.replace(run.name, "stranger"))
    address = groups.client.scheduler.address
    refused = CliRunner().invoke(app, ["apply", str(path), "-a", address, "--json"])
    assert refused.exit_code == 2
    assert "only in the plan: stranger" in json.loads(refused.stdout)["error"]["message"]
    path.write_text(plan.replace(home, away))
    with opened_once_asked(held, run):
        done = CliRunner().invoke(app, ["apply", str(path), "-a", address, "--json", "--wait"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["moves"] == [{"job": run.name, "from": home, "to": away}]
    assert run.result(TIMEOUT_S).group == away
    assert run.export(tmp_path / "model") == expected
    reasons = [solve["reason"] for solve in groups.plan()["history"]]
    assert "applied by an operator" in reasons


def test_what_cannot_be_asked_is_refused_and_changes_nothing(groups, submit):
    run = submit("refusing", iterations=2)
    run.result(TIMEOUT_S)
    with pytest.raises(JobError, match="is finished"):
        run.pause()
    with pytest.raises(JobError, match="is finished"):
        run.cancel_sample(0, 0)
    with pytest.raises(JobError, match="both count from 0"):
        run.cancel_sample(-1, 0)
    with pytest.raises(JobError, match="no group is called 'group-O'"):
        groups.drain("group-O")
    with pytest.raises(JobError, match="no job is called"):
        Run(groups, "nobody", None).pause()
