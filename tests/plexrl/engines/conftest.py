"""Untrained tiny models for the tests of the engines."""

import pytest

from plexrl.engines.tiny_model import random_base


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory):
    return random_base(tmp_path_factory.mktemp("base") / "model", seed=0)


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory):
    return random_base(tmp_path_factory.mktemp("other") / "model", seed=1)
