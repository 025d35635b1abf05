"""What other systems are told, as text and as YAML."""

import pytest
import yaml

from plexrl.errors import InputError
from plexrl.runtime.deployments import (
    group_arguments,
    jobqueue_options,
    kubernetes_objects,
    ssh_workers,
)


def test_ssh_workers_are_groups_and_ordinary_ones_each_on_its_host():
    specs = ssh_workers(
        {"a": "node-1", "b": "node-2"},
        ["node-1", "node-1"],
        cpu_threads=4,
        connect_options={"known_hosts": None},
        remote_python="/opt/python",
    )
    assert list(specs) == ["a", "b", "cpu-0", "cpu-1"]
    group, cpu = specs["b"]["options"], specs["cpu-1"]["options"]
    assert (group["address"], cpu["address"]) == ("node-2", "node-1")
    assert group["kwargs"] == {"memory_limit": 0, "nthreads": 2, "resources": {"llm:b": 2}}
    assert cpu["kwargs"] == {"memory_limit": 0, "nthreads": 4}
    assert cpu["connect_options"] == {"known_hosts": None}
    assert cpu["remote_python"] == "/opt/python"


def test_a_queue_job_brings_a_group_and_a_worker_beside_it():
    jobqueue = pytest.importorskip("dask_jobqueue")
    options = jobqueue_options(cores=8, memory="32 GB", directives=["--gres=gpu:4"])
    with jobqueue.SLURMCluster(**options, interface="lo", scheduler_options={"port": 0}) as cluster:
        script = cluster.job_script()
    assert "#SBATCH --gres=gpu:4" in script
    assert "--nworkers 2" in script
    assert " ".join(group_arguments("first")) in script


def test_the_options_of_a_queue_job_name_the_preload():
    options = jobqueue_options(cores=8, memory="32 GB", cpu_workers=3)
    assert options["processes"] == 4
    assert options["worker_extra_args"] == group_arguments("first")
    assert "plexrl.runtime.announcing" in group_arguments()


def test_kubernetes_objects_survive_yaml_and_belong_together():
    objects = kubernetes_objects("rl", "image", groups=3, gpus=8, cpu_workers=2, cpu_threads=16)
    cluster, groups = yaml.safe_load_all(yaml.safe_dump_all(objects))
    assert (cluster["kind"], groups["kind"]) == ("DaskCluster", "DaskWorkerGroup")
    assert groups["spec"]["cluster"] == cluster["metadata"]["name"] == "rl"
    assert groups["spec"]["worker"]["replicas"] == 3
    (pod,) = groups["spec"]["worker"]["spec"]["containers"]
    assert pod["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert pod["args"][:3] == ["dask-worker", "--name", "$(DASK_WORKER_NAME)"]
    assert pod["args"][-1] == "auto"
    (cpu,) = cluster["spec"]["worker"]["spec"]["containers"]
    assert "16" in cpu["args"]
    assert "resources" not in cpu


def test_without_accelerators_a_group_is_named_after_its_pod():
    _, groups = kubernetes_objects("rl", "image", groups=1)
    (pod,) = groups["spec"]["worker"]["spec"]["containers"]
    assert pod["args"][-1] == "$(DASK_WORKER_NAME)"


@pytest.mark.parametrize(
    "make",
    [
        lambda: ssh_workers({}, ["a"]),
        lambda: ssh_workers({"g": "a"}, []),
        lambda: jobqueue_options(cores=1, memory="1 GB"),
        lambda: kubernetes_objects("rl", "image", groups=0),
    ],
)
def test_a_cluster_that_could_run_nothing_is_refused(make):
    with pytest.raises(InputError, match="at least"):
        make()
