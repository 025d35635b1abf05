"""Tenants train adapters over one base: one engine, small states, weights of running alone."""

import json

import pytest

from dataflow.lora import LoraSpec
from plexrl.core.states import Tier
from plexrl.engines.folders import state_bytes
from tests.integration.rewards import CAPITALS, DIGITS

pytestmark = pytest.mark.slow
TIMEOUT_S = 180.0
LORA = LoraSpec(rank=4, alpha=8.0)


def test_adapter_tenants_share_one_engine_and_end_with_the_weights_of_running_alone(
    cluster, small_job, base, tmp_path
):
    kinds = {"digits": {"reward": DIGITS}, "capitals": {"reward": CAPITALS, "seed": 3}}

    def job(name, kind, lora):
        return small_job(name, lora=lora, lr=2e-3, iterations=4, **kinds[kind])

    def finish(run, name):
        run.result(TIMEOUT_S)
        return run.export(tmp_path / name)

    alone = {
        kind: finish(cluster.submit(job(f"{kind}-alone", kind, LORA)), f"{kind}-alone")
        for kind in kinds
    }
    before = cluster.status().groups[0].num_engine_starts
    whole = cluster.submit(job("lora-whole", "digits", None))
    runs = {kind: cluster.submit(job(kind, kind, LORA)) for kind in kinds}
    shared = {kind: finish(run, kind) for kind, run in runs.items()}
    whole.result(TIMEOUT_S)
    assert shared == alone
    assert shared["digits"] != shared["capitals"]
    # One for the whole network at most: the tenants use the one that is there.
    assert cluster.status().groups[0].num_engine_starts <= before + 1
    config = json.loads((tmp_path / "digits" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (4, 8.0)
    moved = [
        lease
        for lease in cluster.trace().leases
        if lease.job in kinds and lease.swap_source == str(Tier.HOST)
    ]
    assert moved
    assert {lease.swap_bytes for lease in moved} == {state_bytes(base, lora=LORA)}
