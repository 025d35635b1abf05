"""Where jobs of files with several pools must be and are: read, and refused with the path."""

from __future__ import annotations

from copy import deepcopy

import pytest

from plexrl.cli.fleetfile import Fleet
from plexrl.cli.problemfile import read_problem
from plexrl.errors import InputError
from solver.workloads import Places
from tests.plexrl.cli.test_planner_fleet import DATA, write


def read(tmp_path, change):
    data = deepcopy(DATA)
    change(data["jobs"][0], data)
    found = read_problem(write(tmp_path, **data))
    assert isinstance(found, Fleet)
    return found


def train(job):
    return job["ops"][1]


@pytest.mark.parametrize(
    ("change", "pins", "width"),
    [
        (lambda j, _: j.update(group="train-2"), Places(train=("train-2",)), 1),
        (lambda j, _: j.update(group="roll-1"), Places(rollout=("roll-1",)), 1),
        (
            lambda j, _: (j.update(group="roll-1"), train(j).update(group="train-5")),
            Places(("roll-1",), ("train-5",)),
            1,
        ),
        (
            lambda j, _: train(j).update(group="train-0", also=["train-3"]),
            Places(train=("train-0", "train-3")),
            2,
        ),
    ],
)
def test_a_job_or_its_ops_name_the_groups_they_must_be_on(tmp_path, change, pins, width):
    job = read(tmp_path, change).jobs[0]
    assert (job.pinned, job.train_width) == (pins, width)


def test_the_pool_of_a_job_is_that_of_its_ops_that_name_none(tmp_path):
    def change(job, _):
        del train(job)["pool"]
        job["pool"] = "h800"

    assert read(tmp_path, change) == read(tmp_path, lambda _, __: None)


def test_weights_count_beside_each_other(tmp_path):
    plain = read(tmp_path, lambda _, __: None)
    alike = read(tmp_path, lambda _, data: [job.update(weight=9) for job in data["jobs"]])
    assert alike == plain
    heavy = read(tmp_path, lambda job, _: job.update(weight=4))
    assert heavy.jobs[0].weight == pytest.approx(4 * heavy.jobs[1].weight)
    assert sum(job.weight for job in heavy.jobs) == pytest.approx(6)


def test_a_file_says_where_jobs_are_now(tmp_path):
    here = {"j0": ["roll-3", "train-1"], "j4": ["train-1", "train-2", "roll-0"]}
    first, other = read(tmp_path, lambda _, data: data.update(current=here)).current
    assert (first.job, first.rollout, first.train) == ("j0", ("roll-3",), ("train-1",))
    assert (other.job, other.rollout, other.train) == ("j4", ("roll-0",), ("train-1", "train-2"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda j, _: j.update(group="train-9"), "jobs[0].group is 'train-9', which is no group"),
        (
            lambda j, _: train(j).update(group="roll-1"),
            "jobs[0].ops[1].group is 'roll-1' of pool 'h20', while its pool is 'h800'",
        ),
        (lambda j, _: train(j).update(also=["train-1"]), "jobs[0].ops[1].also goes with group"),
        (
            lambda j, _: train(j).update(group="train-1", also=["train-1"]),
            "jobs[0].ops[1] holds train-1, train-1; name each group once",
        ),
        (
            lambda j, _: (j.update(group="train-1"), train(j).update(group="train-2")),
            "jobs[0].ops[1] is on train-2, its job is pinned to train-1 of pool 'h800'",
        ),
        (
            lambda j, _: train(j).update(group="train-1", groups=2),
            "jobs[0].ops[1].groups is 2, while its job is pinned to train-1",
        ),
        (
            lambda j, d: (
                d["groups"].append({"name": "spare", "pool": "x", "memory_gb": 1}),
                j.update(group="spare"),
            ),
            "jobs[0].group is 'spare' of pool 'x', which none of its ops uses",
        ),
        (lambda _, d: d.update(current={"j9": "roll-0"}), "current['j9'] is of no job"),
        (
            lambda _, d: d.update(current={"j1": ["roll-0", "train-7"]}),
            "current['j1'] is 'train-7', which is no group",
        ),
        (lambda _, d: d.update(current={"j1": "roll-0"}), "none is for train"),
        (lambda _, d: d.update(current={"j1": []}), "current.j1 is []; give the name of a group"),
    ],
)
def test_places_that_contradict_themselves_are_named(tmp_path, change, words):
    with pytest.raises(InputError) as caught:
        read(tmp_path, change)
    assert words in str(caught.value)


def test_one_group_is_named_where_a_job_has_only_one(tmp_path):
    jobs = [{"name": "a", "ops": [{"name": "train", "duration_s": 1}]}]
    file = write(tmp_path, jobs=jobs, current={"a": ["roll-0", "train-0"]})
    with pytest.raises(InputError, match="current\\['a'\\] is \\['roll-0', 'train-0'\\]"):
        read_problem(file)
