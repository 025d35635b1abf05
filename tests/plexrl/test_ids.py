import pytest

from plexrl.errors import JobError
from plexrl.ids import check_job_name, new_run_id


@pytest.mark.parametrize("name", ["a", "sort-asc", "v1.2_x", "0", "x" * 64])
def test_good_names_pass(name):
    assert check_job_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-a", "a/b", "a b", "ü", "a\n", "../a", None, 3, "x" * 65]
)
def test_bad_names_are_refused(name):
    with pytest.raises(JobError, match="job name"):
        check_job_name(name)


def test_run_ids_differ():
    assert len({new_run_id() for _ in range(50)}) == 50
