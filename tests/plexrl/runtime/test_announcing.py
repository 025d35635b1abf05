"""Workers that others start announce their group by themselves."""

import pytest
from distributed import Worker

from plexrl.runtime.accelerators import VISIBLE
from plexrl.runtime.announcing import group_name
from plexrl.runtime.deployments import PRELOAD


@pytest.mark.parametrize(
    ("worker", "choice", "has_devices", "group"),
    [
        ("a", "auto", True, "group-a"),
        ("a", "auto", False, None),
        ("Slurm-3-0", "first", False, "group-Slurm-3"),
        ("Slurm-3-1", "first", True, None),
        ("a", "math", False, "math"),
    ],
)
def test_a_group_is_named_after_its_worker(worker, choice, has_devices, group):
    assert group_name(worker, choice, has_devices=has_devices) == group


@pytest.mark.parametrize(
    ("devices", "argument", "expected"),
    [("0", "auto", {"llm:group-w": 2}), ("", "auto", {}), ("", "math", {"llm:math": 2})],
)
def test_a_worker_announces_its_group_before_it_registers(
    dask_client, monkeypatch, devices, argument, expected
):
    monkeypatch.setenv(VISIBLE, devices)

    async def announced():
        options = {"preload": [PRELOAD], "preload_argv": ["--plexrl-group", argument]}
        address = dask_client.scheduler.address
        async with Worker(address, name="w", nthreads=1, dashboard=False, **options) as worker:
            info = await dask_client.scheduler.identity(n_workers=-1)
            return info["workers"][worker.address]["resources"]

    assert dask_client.sync(announced) == expected
