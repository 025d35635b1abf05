import os
import tempfile

from plexrl.runtime.scratch import MAX_LENGTH, keep_scratch


def test_temporary_files_go_where_the_worker_keeps_its_own_unless_sockets_would_not_fit(
    monkeypatch,
):
    monkeypatch.setenv("TMPDIR", "/before")
    monkeypatch.setattr(tempfile, "tempdir", "/before")
    keep_scratch("/" + "x" * MAX_LENGTH)
    assert (os.environ["TMPDIR"], tempfile.gettempdir()) == ("/before", "/before")
    keep_scratch("/scratch/worker-1")
    assert (os.environ["TMPDIR"], tempfile.gettempdir()) == ("/scratch/worker-1",) * 2
