"""The alert rules fire on what they are for and on nothing else; the Grafana board is whole."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from plexrl.core.states import StoreUse
from plexrl.core.status import JobState
from plexrl.dashboard.prometheus import families
from plexrl.dashboard.source import Cockpit
from solver.trace import Outcome
from tests.plexrl.cli.made_up import lease
from tests.plexrl.dashboard.made_up import MadeUp
from tests.plexrl.dashboard.promql import scraped, vector

MONITORING = Path(__file__).parents[3] / "docs" / "monitoring"
PROMTOOL = shutil.which("promtool")
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}


def group_is(source, **change):
    source.groups = (replace(source.groups[0], **change),)


def job_is(source, **change):
    source.jobs = (replace(source.jobs[0], **change), *source.jobs[1:])


def plan_is(source, **change):
    source.plan_status = replace(source.plan_status, **change)


def two_errors(source):
    told = source.status
    source.status = lambda: replace(told(), num_errors=2)


TROUBLES = {
    "PlexRLStuckLease": lambda source: group_is(source, held_for_s=1000.0),
    "PlexRLStalePlan": lambda source: plan_is(source, adopted_s=-400.0),
    "PlexRLUnverifiedPlan": lambda source: plan_is(source, is_verified=False),
    "PlexRLStorePressure": lambda source: group_is(
        source, host_used_bytes=source.groups[0].host_budget_bytes
    ),
    "PlexRLStoreTrouble": lambda source: group_is(source, store=StoreUse(error="disk full")),
    "PlexRLDamagedVersions": lambda source: group_is(source, store=StoreUse(num_damaged=1)),
    "PlexRLSlowdownLimitPassed": lambda source: job_is(source, slowdown_limit=1.1),
    "PlexRLJobFailed": lambda source: job_is(source, state=JobState.FAILED, ended_s=9.0),
    "PlexRLLeasesLost": lambda source: source.log.append(replace(lease(), outcome=Outcome.LOST)),
    "PlexRLSchedulerErrors": two_errors,
}
"""Alert → what makes it fire, and no other."""


def scrape(trouble=None):
    source = MadeUp()
    group_is(source, held_for_s=0.4)
    if trouble is not None:
        trouble(source)
    return scraped(families(Cockpit(source).read()))


def test_no_alert_fires_while_all_is_well():
    quiet = scrape()
    assert {name for name, rule in RULES.items() if vector(rule["expr"], quiet, quiet)} == set()


@pytest.mark.parametrize("alert", TROUBLES)
def test_each_alert_fires_on_its_trouble_alone(alert):
    before, after = scrape(), scrape(TROUBLES[alert])
    firing = {name for name, rule in RULES.items() if vector(rule["expr"], before, after)}
    assert firing == {alert}


def test_every_rule_is_tried_and_says_what_to_do():
    assert set(RULES) == set(TROUBLES)
    for rule in RULES.values():
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        # A label that the expression drops would leave a hole in the text.
        named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        (labels, *_) = vector(rule["expr"], scrape(), scrape(TROUBLES[rule["alert"]]))
        assert named <= set(dict(labels))


def series(sample):
    name, labels = sample
    told = ",".join(f'{label}="{value}"' for label, value in sorted(labels))
    return f"{name}{{{told}}}"


def minutes(text):
    return int(text.removesuffix("m"))


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool (Debian's package prometheus)")
def test_promtool_takes_the_rules_and_sees_them_fire(tmp_path):
    cases = []
    for alert, rule in RULES.items():
        before, after = scrape(), scrape(TROUBLES[alert])
        firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
        at = 6 + minutes(rule.get("for", "0m"))
        cases.append(
            {
                "interval": "1m",
                "input_series": [
                    {
                        "series": series(sample),
                        "values": f"{before.get(sample, value)}x4 {value}x30",
                    }
                    for sample, value in after.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": firing,
                        "eval_time": f"{at}m",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    },
                    {"expr": firing, "eval_time": "4m", "exp_samples": []},
                ],
            }
        )
    path = tmp_path / "rules.test.yaml"
    rules = {"rule_files": [str(MONITORING / "alerts.yaml")], "evaluation_interval": "1m"}
    path.write_text(yaml.safe_dump({**rules, "tests": cases}), encoding="utf-8")
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def names_in(expression):
    return set(re.findall(r"\bplexrl_[a-z_]+", expression))


def test_the_grafana_board_is_whole_and_uses_metrics_that_exist():
    board = json.loads((MONITORING / "grafana.json").read_text(encoding="utf-8"))
    known = {name for name, _ in scrape()}
    assert {"title", "uid", "schemaVersion", "templating", "panels"} <= set(board)
    (variable,) = board["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in {"stat", "timeseries"}
        assert panel["datasource"]["uid"] == f"${{{variable['name']}}}"
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == [*"ABCDEF"[: len(letters)]]
        for target in panel["targets"]:
            assert names_in(target["expr"]), panel["title"]
            assert names_in(target["expr"]) <= known, panel["title"]


def test_the_panels_of_the_board_do_not_overlap():
    board = json.loads((MONITORING / "grafana.json").read_text(encoding="utf-8"))
    taken = set()
    for place in (panel["gridPos"] for panel in board["panels"]):
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells
