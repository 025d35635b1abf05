"""The registry of jobs in the store."""

from plexrl.runtime.registry import JobRegistry


def test_a_new_store_has_no_jobs(tmp_path):
    registry = JobRegistry(tmp_path)
    assert registry.names() == ()
    assert registry.unfinished() == ()


def test_unfinished_jobs_are_those_to_resume(tmp_path):
    registry = JobRegistry(tmp_path)
    for name in ("interrupted", "finished", "failed"):
        registry.save(name, name.encode())
    registry.end("finished", "")
    registry.end("failed", "EngineError: NaN")
    assert registry.names() == ("failed", "finished", "interrupted")
    assert registry.unfinished() == ("failed", "interrupted")
    assert registry.spec("interrupted") == b"interrupted"
    assert registry.error("failed") == "EngineError: NaN"


def test_a_job_that_runs_again_is_unfinished_again(tmp_path):
    registry = JobRegistry(tmp_path)
    registry.save("a", b"1")
    registry.end("a", "")
    registry.save("a", b"2")
    assert registry.unfinished() == ("a",)
    assert registry.spec("a") == b"2"


def test_another_process_sees_what_was_saved(tmp_path):
    JobRegistry(tmp_path).save("a", b"spec")
    assert JobRegistry(tmp_path).names() == ("a",)
