import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from plexrl.core.status import PlanStatus
from plexrl.dashboard.prometheus import _Collector, families
from plexrl.dashboard.source import Cockpit
from tests.plexrl.dashboard.made_up import MadeUp

ROOT = Path(__file__).parents[3]


def by_name(source):
    return {family.name: family for family in families(Cockpit(source).read())}


def test_metrics_say_what_the_status_says():
    found = by_name(MadeUp())
    assert dict(found["plexrl_job_iteration"].samples[0][0]) == {"job": "job-0"}
    assert found["plexrl_job_iteration"].samples[0][1] == 5.0
    assert found["plexrl_plan_gap_ratio"].samples[0][1] == pytest.approx(0.1)
    assert found["plexrl_leases"].samples[0] == ({"outcome": "done"}, 20.0)
    moved = {"group": "group-0", "source": "host", "target": "device"}
    assert found["plexrl_state_bytes"].samples == ((moved, 5_000_000.0),)


def test_names_follow_the_conventions_of_prometheus():
    for name, family in by_name(MadeUp()).items():
        assert re.fullmatch(r"plexrl_[a-z_]+", name)
        assert not name.endswith("_total")
        labels = [tuple(sample) for sample, _ in family.samples]
        assert len(set(labels)) <= 1, name


def test_what_is_not_known_has_no_sample():
    source = MadeUp()
    source.plan_status = PlanStatus()
    source.jobs = tuple(replace(job, reward_last=None) for job in source.jobs)
    found = by_name(source)
    assert found["plexrl_plan_gap_ratio"].samples == ()
    assert found["plexrl_job_reward"].samples == ()


@pytest.mark.skipif(find_spec("prometheus_client") is None, reason="needs prometheus_client")
def test_the_client_library_takes_every_family():
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(None, lambda _server: Cockpit(MadeUp())))
    text = generate_latest(registry).decode()
    assert 'plexrl_job_iteration{job="job-0"} 5.0' in text
    assert 'plexrl_leases_total{outcome="done"} 20.0' in text


def test_the_documentation_lists_every_metric_with_its_labels_and_meaning():
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(plexrl_\w+)` \| ([^|]*) \| ([^|]+) \|$", text, re.MULTILINE)
    documented = {name: (labels.strip(), told.strip()) for name, labels, told in rows}
    assert documented == {
        f"{name}_total" if family.is_counter else name: (
            ", ".join(family.samples[0][0]),
            family.told,
        )
        for name, family in by_name(MadeUp()).items()
    }
