from plexrl.cli.demo import DEMO_JOBS, clear_store, demo_jobs


def test_jobs_share_a_base_and_differ_in_what_verifies_them():
    jobs = demo_jobs("base", iterations=7, seed=3)
    assert len(jobs) >= 3
    assert {job.models["actor"].folder for job in jobs} == {"base"}
    assert {(job.iterations, job.seed) for job in jobs} == {(7, 3)}
    assert len({job.description for job in jobs}) == len(jobs)


def test_one_job_calls_a_tool_and_one_judge_answers_late():
    jobs = demo_jobs("base", iterations=1, seed=0)
    assert any(job.pipeline.settings.num_tool_turns for job in jobs)
    assert any("late judge" in job.description and "log-normal" in job.description for job in jobs)


def test_names_are_short_enough_for_the_table():
    assert all(len(job.name) <= 12 for job in DEMO_JOBS)


def test_only_a_store_is_cleared(tmp_path):
    mine = tmp_path / "mine"
    (mine / "jobs").mkdir(parents=True)
    clear_store(mine)
    assert mine.exists()
    (mine / "states").mkdir()
    clear_store(mine)
    assert not mine.exists()
    clear_store(mine)
