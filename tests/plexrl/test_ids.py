import pytest

from plexrl.errors import JobError
from plexrl.ids import check_job_name, lease_id, new_run_id, unique_name


@pytest.mark.parametrize("name", ["a", "sort-asc", "v1.2_x", "0", "x" * 64])
def test_good_names_pass(name):
    assert check_job_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-a", "a/b", "a b", "ü", "a\n", "../a", None, 3, "x" * 65]
)
def test_bad_names_are_refused(name):
    with pytest.raises(JobError, match="job name"):
        check_job_name(name)


def test_unique_name_counts_from_two():
    assert unique_name("a", {"b"}) == "a"
    assert unique_name("a", {"a", "a-2"}) == "a-3"


def test_run_ids_differ():
    assert len({new_run_id() for _ in range(50)}) == 50


def test_lease_ids_tell_attempts_apart():
    assert lease_id("k", 0) != lease_id("k", 1)
