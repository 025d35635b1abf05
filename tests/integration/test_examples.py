"""The examples run unchanged, and a plain loop without PlexRL learns the same bits."""

import importlib
from dataclasses import replace

import pytest

from benchmarks.plain_loop import run_plain

pytestmark = pytest.mark.slow
TIMEOUT_S = 120.0


@pytest.mark.parametrize("name", ["own_loss", "two_models", "adaptive_turns"])
def test_a_pipeline_written_by_hand_runs_unchanged(cluster, base, name):
    example = importlib.import_module(f"examples.{name}")
    job = replace(example.job(base), name=f"example-{name}", iterations=2, slowdown_limit=10.0)
    run = cluster.submit(job)
    assert run.result(TIMEOUT_S).iteration == 2
    assert all("reward_mean" in row for row in run.metrics())


def test_the_quickstart_is_about_ten_lines():
    from pathlib import Path

    text = Path("examples/quickstart.py").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith('"""')]
    assert len(lines) <= 12
    compile(text, "quickstart.py", "exec")


@pytest.mark.parametrize("task", ["ascending", "calculator"])
def test_a_plain_loop_without_plexrl_ends_with_the_same_weights(cluster, small_job, tmp_path, task):
    job = small_job(f"plain-{task}", task, iterations=3)
    run = cluster.submit(job)
    run.result(TIMEOUT_S)
    assert run.export(tmp_path / "out") == run_plain(job).weights_sha256


def test_the_graph_of_a_run_is_drawn(cluster, small_job, tmp_path):
    run = cluster.submit(small_job("drawn", iterations=1))
    run.result(TIMEOUT_S)
    picture = run.graph(tmp_path / "graph.svg")
    text = picture.path.read_text(encoding="utf-8")
    assert picture._repr_html_() == text
    assert text.startswith("<svg")
    assert "rollout" in text
    assert "train" in text


def test_an_exported_model_loads_in_transformers(cluster, small_job, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = cluster.submit(small_job("exported", iterations=1))
    run.result(TIMEOUT_S)
    run.export(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert model.generate(**tokenizer("x12345=", return_tensors="pt"), max_new_tokens=2).shape


def test_an_export_leaves_nothing_open_that_keeps_others_from_looking_ahead(
    cluster, small_job, tmp_path
):
    run = cluster.submit(small_job("written", iterations=1))
    run.result(TIMEOUT_S)
    run.export(tmp_path / "model")
    after = cluster.submit(small_job("after-export", iterations=4))
    after.result(TIMEOUT_S)
    leases = [lease for lease in cluster.trace().leases if lease.job == after.name]
    assert any(lease.ahead_s > 0 for lease in leases if lease.op == "actor.rollout.0")
