"""Samples kept in the store."""

import pytest

from dataflow.nodes import Scored
from dataflow.samples import EndReason, Prompt, Rewards, Sample
from plexrl.errors import InputError
from plexrl.runtime.sample_log import SampleLog, keep, write_or_warn

SAMPLES = tuple(
    Sample(
        Prompt(3, "x12=", "12"),
        index,
        (1, 2),
        token_ids=(4, 5),
        policy_mask=(True, False),
        logprobs=(-0.1, 0.0),
        text="1\n\u2028",
        turn=1,
        end=EndReason.STOP,
    )
    for index in range(2)
)


def test_what_was_trained_on_comes_back_as_rows(tmp_path):
    log = SampleLog(tmp_path)
    scored = Scored(Rewards((1.0, 0.0), ("right", "wrong")), (0.5, -0.5))
    keep(log, "job", "actor", 7, SAMPLES, scored, None, None)
    right, wrong = log.read("job", 7)
    assert (right["prompt"], right["completion"], right["answer"]) == ("x12=", "1\n\u2028", "12")
    assert (right["reward"], right["advantage"], right["reason"]) == (1.0, 0.5, "right")
    assert (wrong["reward"], wrong["end"], wrong["num_tokens"]) == (0.0, "stop", 1)
    assert log.iterations("job") == (7,)


def test_advantages_per_token_and_plain_rewards_are_rows_too(tmp_path):
    log = SampleLog(tmp_path)
    keep(log, "job", "actor", 0, SAMPLES, ((0.25, 9.0), (-0.25, 9.0)), [1, 0], None)
    assert [(row["reward"], row["advantage"]) for row in log.read("job")] == [(1, 0.25), (0, -0.25)]


def test_the_newest_iteration_is_read_by_default_and_a_replay_replaces(tmp_path):
    log = SampleLog(tmp_path)
    for iteration, reward in ((4, 0.1), (12, 0.2), (12, 0.3)):
        keep(log, "job", "actor", iteration, SAMPLES[:1], (0.0,), (reward,), None)
    assert [row["reward"] for row in log.read("job")] == [0.3]
    assert log.iterations("job") == (4, 12)
    assert [path.name for path in (tmp_path / "samples/job/actor").iterdir()].count(
        "000012.jsonl"
    ) == 1


def test_asking_for_what_is_not_kept_says_what_is(tmp_path):
    log = SampleLog(tmp_path)
    with pytest.raises(InputError, match=r"no samples of 'actor' of job 'job'.*keep_samples"):
        log.read("job")
    keep(log, "job", "actor", 4, SAMPLES, (0.0, 0.0), (0.0, 0.0), None)
    with pytest.raises(InputError, match=r"iteration 5 of job 'job'.*from 4 to 4"):
        log.read("job", 5)


def test_a_job_that_begins_anew_has_no_samples_of_the_one_before(tmp_path):
    log = SampleLog(tmp_path)
    for job in ("old", "other"):
        keep(log, job, "actor", 0, SAMPLES, (0.0, 0.0), (0.0, 0.0), None)
    log.forget("old")
    log.forget("never there")
    assert (log.iterations("old"), log.iterations("other")) == ((), (0,))


def test_a_store_that_cannot_be_written_costs_a_warning_only(tmp_path, caplog):
    (tmp_path / "samples").write_text("a file in the way")
    write_or_warn(SampleLog(tmp_path), "job", "actor", 3, [{"prompt": "x"}])
    assert "samples of iteration 3 of job job are not kept" in caplog.text
