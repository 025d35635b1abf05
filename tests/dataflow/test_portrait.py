from dataclasses import replace

import pytest

from dataflow.jobs import JobSpec, ModelSpec, TrackerSpec


@pytest.fixture
def job():
    models = {"actor": ModelSpec("/models/base"), "judge": ModelSpec("/models/judge", False)}
    return JobSpec("sorter", models, lambda it: it, iterations=40, description="sorts digits")


def test_a_job_shows_what_it_is_in_a_notebook(job):
    shown = job._repr_html_()
    for word in ("Job sorter", "sorts digits", "base: trained, rollouts by torch", "40"):
        assert word in shown
    assert "judge: frozen" in shown


def test_what_a_job_does_not_set_is_not_shown(job):
    assert "trackers" not in job._repr_html_()
    tracked = replace(job, trackers=(TrackerSpec("wandb"),), groups={"train": "big"})
    assert "wandb" in tracked._repr_html_()
    assert "train on big" in tracked._repr_html_()


def test_what_users_wrote_is_escaped(job):
    shown = replace(job, description="<script>")._repr_html_()
    assert "<script" not in shown
