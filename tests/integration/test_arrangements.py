"""Jobs over two groups: split, asynchronous and gangs learn what they learn on one group."""

import itertools
import json
from dataclasses import dataclass, replace

import pytest
from typer.testing import CliRunner

import plexrl
from dataflow.lora import LoraSpec
from dataflow.pipelines import grpo_pipeline
from plexrl.cli.main import app
from plexrl.engines.folders import state_bytes
from plexrl.errors import JobError
from plexrl.runtime.facts import job_facts
from tests.integration.test_deaths import TIMEOUT_S, kill_worker, wait_for_iteration
from tests.integration.test_steering import is_ordered, opened_once_asked, wait_until

pytestmark = pytest.mark.slow
ITERATIONS = 4
SPLIT = {"train": "group-0", "rollout": "group-1"}


@pytest.fixture(scope="module")
def two_groups(tmp_path_factory, host_budget_bytes):
    store = tmp_path_factory.mktemp("two-groups")
    with plexrl.LocalCluster(
        groups=2, store=store, host_budget_bytes=2 * host_budget_bytes
    ) as cluster:
        yield cluster
        assert cluster.status().num_errors == 0


@pytest.fixture(scope="module")
def alone(two_groups, tmp_path_factory):
    """Digests of runs on one group, by what the job is made of."""
    known = {}

    def digest(make, key, **settings):
        if key not in known:
            run = two_groups.submit(make(f"alone-{key}", arrangement="colocated", **settings))
            run.result(TIMEOUT_S)
            known[key] = run.export(tmp_path_factory.mktemp("alone") / key)
        return known[key]

    return digest


def groups_by_phase(cluster, job):
    leases = [le for le in cluster.trace().leases if le.job == job and le.iteration >= 0]
    found = {}
    for lease in leases:
        found.setdefault(lease.op.split(".")[1], set()).add(lease.group)
    return found


def test_a_split_job_ends_with_the_weights_it_has_on_one_group(
    two_groups, small_job, alone, tmp_path
):
    settings = {"iterations": ITERATIONS}
    run = two_groups.submit(small_job("split", arrangement="split", groups=SPLIT, **settings))
    assert run.result(TIMEOUT_S).group == "group-0+group-1"
    assert groups_by_phase(two_groups, "split") == {"rollout": {"group-1"}, "train": {"group-0"}}
    plans = [plan for plan in two_groups.plan()["history"] if "split" in plan["placement"]]
    assert any(plan["verified"] and plan["cycles"]["split"]["predicted_s"] for plan in plans)
    assert run.export(tmp_path / "split") == alone(small_job, "plain", **settings)


def test_of_a_split_job_with_adapters_these_alone_are_copied(
    two_groups, small_job, base, alone, tmp_path
):
    settings = {"iterations": 3, "lr": 2e-3, "lora": LoraSpec(rank=4, alpha=8.0)}
    job = small_job("adapters", arrangement="split", groups=SPLIT, **settings)
    weights_bytes = state_bytes(base, is_trainable=False, lora=settings["lora"])
    assert job_facts(job).copy_bytes == 2 * weights_bytes
    run = two_groups.submit(job)
    run.result(TIMEOUT_S)
    assert run.export(tmp_path / "adapters") == alone(small_job, "adapters", **settings)
    moved = [le for le in two_groups.trace().leases if le.job == "adapters" and le.swap_bytes]
    assert {le.swap_bytes for le in moved if le.group == "group-1"} == {weights_bytes}


def test_an_asynchronous_job_learns_the_same_wherever_it_samples(
    two_groups, small_job, alone, tmp_path
):
    settings = {"iterations": ITERATIONS, "staleness": 1}
    job = small_job("async", arrangement="asynchronous", groups=SPLIT, **settings)
    run = two_groups.submit(job)
    run.result(TIMEOUT_S)
    assert run.export(tmp_path / "async") == alone(small_job, "stale", **settings)


def test_an_applied_plan_swaps_where_a_split_job_trains_and_samples(
    two_groups, small_job, alone, gate, tmp_path
):
    held = gate(2)
    job = small_job("swapped", arrangement="split", iterations=ITERATIONS, reward=held)
    run = two_groups.submit(job)
    wait_for_iteration(run, 2)
    before = run.status().group
    wait_until(run, lambda _: is_ordered(two_groups, run))
    plan = json.dumps(two_groups.plan()["in_force"]["plan"])
    path = tmp_path / "plan.json"
    path.write_text(plan.replace("-0", "-x").replace("-1", "-0").replace("-x", "-1"))
    with opened_once_asked(held, run):
        address = two_groups.client.scheduler.address
        done = CliRunner().invoke(app, ["apply", str(path), "-a", address, "--json", "--wait"])
    assert done.exit_code == 0, done.output
    after = "+".join(reversed(before.split("+")))
    assert json.loads(done.stdout)["moves"] == [{"job": "swapped", "from": before, "to": after}]
    assert run.result(TIMEOUT_S).group == after
    swapped = {"group-0", "group-1"}
    assert groups_by_phase(two_groups, "swapped") == {"rollout": swapped, "train": swapped}
    assert run.export(tmp_path / "swapped") == alone(small_job, "plain", iterations=ITERATIONS)


def planned_for_two_pools(folder, names):
    """A plan of ``plexrl plan`` for jobs that are split over the two groups."""
    ops = [
        {"name": name, "pool": pool, "duration_s": 1}
        for name, pool in (("roll", "r"), ("fit", "t"))
    ]
    problem = {
        "format": 1,
        "groups": [
            {"name": SPLIT["rollout"], "pool": "r", "memory_gb": 1},
            {"name": SPLIT["train"], "pool": "t", "memory_gb": 1},
        ],
        "jobs": [{"name": name, "slowdown_limit": 50, "ops": ops} for name in names],
        "current": {name: sorted(SPLIT.values()) for name in names},
    }
    file, plan = folder / "problem.json", folder / "plan.json"
    file.write_text(json.dumps(problem))
    done = CliRunner().invoke(app, ["plan", str(file), "--budget", "0", "--output", str(plan)])
    assert done.exit_code == 0, done.output
    return plan


def test_an_applied_plan_of_several_pools_serves_by_its_rule_and_leaves_the_bits(
    two_groups, small_job, alone, gate, tmp_path
):
    settings = {"iterations": ITERATIONS, "arrangement": "split", "groups": SPLIT}
    gates = {name: gate(2, name=name) for name in ("ruled-a", "ruled-b")}
    runs = [
        two_groups.submit(small_job(name, reward=held, slowdown_limit=50.0, **settings))
        for name, held in gates.items()
    ]
    for run in runs:
        wait_for_iteration(run, 2)
    path = planned_for_two_pools(tmp_path, gates)
    rule = json.loads(path.read_text())["rule"]
    assert rule["tolerances"].keys() == gates.keys()
    address = two_groups.client.scheduler.address
    done = CliRunner().invoke(app, ["apply", str(path), "-a", address, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["shortest_first"] == ["group-0", "group-1"]

    def in_force():
        return two_groups.plan()["in_force"]

    # The planner, in a process of its own, plans again before long.
    wait_until(runs[0], lambda _: in_force()["status"] != "applied")
    assert in_force()["rules"] == {"group-0": rule, "group-1": rule}
    told = "shortest first on group-0, group-1"
    status = CliRunner().invoke(app, ["status", address])
    assert told in " ".join(status.output.split())
    for held, run in zip(gates.values(), runs, strict=True):
        held.open()
        run.result(TIMEOUT_S)
        made = run.export(tmp_path / f"{run.name}-exported")
        assert made == alone(small_job, "plain", iterations=ITERATIONS)


def test_a_frozen_reference_may_have_a_group_of_its_own(two_groups, small_job, alone, tmp_path):
    settings = {"iterations": 3, "kl_coef": 0.1, "lr": 1e-3}
    places = {"train": "group-0", "reference.logprob": "group-1"}
    run = two_groups.submit(small_job("apart", groups=places, **settings))
    run.result(TIMEOUT_S)
    assert groups_by_phase(two_groups, "apart")["logprob"] == {"group-1"}
    assert run.export(tmp_path / "apart") == alone(small_job, "kl", **settings)


@dataclass(frozen=True)
class Synced:
    """The pipeline with a sync at its start."""

    settings: object

    def __call__(self, it):
        it.actor.sync()
        return grpo_pipeline(it, self.settings)


def with_sync(job):
    return replace(job, pipeline=Synced(job.pipeline.settings), hints_s={})


def test_a_function_over_two_groups_holds_both_at_once(two_groups, small_job, alone, tmp_path):
    names = ("gang-a", "gang-b")
    crossed = {"train": "group-1", "rollout": "group-0"}
    runs = [
        two_groups.submit(with_sync(small_job(name, iterations=ITERATIONS, groups=places)))
        for name, places in zip(names, (SPLIT, crossed), strict=True)
    ]
    for run in runs:
        run.result(TIMEOUT_S)
    leases = [le for le in two_groups.trace().leases if le.job in names and le.iteration >= 0]
    gangs = {}
    for lease in leases:
        if lease.op == "actor.sync.0":
            gangs.setdefault(lease.id, []).append(lease)
    assert len(gangs) == len(names) * ITERATIONS
    for first, second in gangs.values():
        assert {first.group, second.group} == {"group-0", "group-1"}
        assert (first.started_s, first.ended_s) == (second.started_s, second.ended_s)
    for group in ("group-0", "group-1"):
        held = sorted((le for le in leases if le.group == group), key=lambda le: le.started_s)
        for before, after in itertools.pairwise(held):
            assert after.started_s >= before.ended_s, (before, after)
    digest = runs[0].export(tmp_path / "gang")
    assert digest == alone(small_job, "plain", iterations=ITERATIONS)
    assert two_groups.status().num_errors == 0


@pytest.mark.parametrize("lost", ["group-0", "group-1"])
def test_the_death_of_either_group_changes_no_bit(
    two_groups, small_job, alone, gate, tmp_path, lost
):
    name = f"mortal-{lost}"
    held = gate(5)
    job = small_job(name, iterations=6, arrangement="split", groups=SPLIT, reward=held)
    run = two_groups.submit(job)
    wait_for_iteration(run, 2)
    (worker,) = [g.worker for g in two_groups.status().groups if g.name == lost]
    kill_worker(two_groups, worker)
    held.open()
    run.result(TIMEOUT_S)
    assert run.export(tmp_path / name) == alone(small_job, "six", iterations=6)
    assert [row["iteration"] for row in run.metrics()] == list(range(6))


def test_an_arrangement_that_cannot_be_had_is_refused_at_once(two_groups, small_job):
    with pytest.raises(JobError, match="wants rollout on group 'group-9', which is not there"):
        two_groups.submit(small_job("nowhere", groups={"rollout": "group-9"}))
    with pytest.raises(JobError, match="arrangement is 'asynchronous' with staleness 0"):
        two_groups.submit(small_job("hasty", arrangement="asynchronous"))
