import pytest

from dataflow.starts import StartVersion
from plexrl.cli.starts import parse_start
from plexrl.errors import InputError


def test_a_start_names_store_job_and_version():
    assert parse_start("/a/b:math.v2@40") == StartVersion("math.v2", 40, "/a/b")


@pytest.mark.parametrize("text", ["math@40", "/a:math", ":math@4", "/a:@4", "/a:math@x", ""])
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(InputError, match="plexrl-store:calculator@40"):
        parse_start(text)
