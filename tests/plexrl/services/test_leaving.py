"""What a group keeps of a job: while it is about to let go of it, and once versions are gone."""

import pytest

from dataflow.calls import AttachOptions, VersionToken
from plexrl.core.states import StateRef, Tier
from plexrl.errors import ServiceError, StateError, VersionFenceError
from plexrl.services.guests import Hosted
from tests.plexrl.services.test_guests import Pair


@pytest.fixture
def pair(tmp_path):
    pair = Pair(tmp_path / "store")
    yield pair
    pair.close()


@pytest.fixture
def service(pair):
    return pair.service()


@pytest.mark.parametrize("home", ["", "tcp://home"])
def test_news_of_a_job_take_back_that_it_shall_be_let_go_of(pair, service, home):
    models = {"actor": AttachOptions("folder", True)}
    hosted = Hosted("job", home=home, is_home=not home, models=models)
    service.host(hosted)
    pair.commit(0)
    service.leave("job")
    assert service.guests.get("job") is None
    service.host(hosted)
    with pytest.raises(ServiceError, match="job 'job' is back on group 'g'"):
        service.forget_job("job", 1.0)
    assert (service.guests.get("job") is None) == (not home)
    assert pair.home.resident()[Tier.HOST] == ("job/actor@0",)
    service.leave("job")
    service.forget_job("job", 5.0)
    assert pair.home.resident()[Tier.HOST] == ()
    assert pair.store.versions("job", "actor") == (0,)


def test_a_version_that_others_took_the_place_of_sends_the_driver_back(pair, service):
    for version in range(5):
        pair.commit(version)
    token = VersionToken("job", "actor", 0, "digest")
    with pytest.raises(VersionFenceError, match="job/actor@4 has taken its place"):
        service._functions._fetch(StateRef("job", "actor", 0), token)
    with pytest.raises(StateError) as caught:
        service._functions._fetch(StateRef("job", "actor", 9), token)
    assert not isinstance(caught.value, VersionFenceError)
