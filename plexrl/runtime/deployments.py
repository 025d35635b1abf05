"""What clusters of other systems are told, so that their workers serve groups.

Each function gives what that system takes: Dask's SSH workers, dask-jobqueue's keyword
arguments, Kubernetes objects of the Dask operator. Nothing here starts or reaches anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distributed.deploy import ssh

from plexrl.errors import InputError
from plexrl.runtime import announcing
from plexrl.runtime.gate import PLACES, RESOURCE_PREFIX

PRELOAD = announcing.__name__
API = "kubernetes.dask.org/v1"
"""Version of the operator's objects."""
GPU = "nvidia.com/gpu"
NO_STEALING = "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING"
"""Variable that keeps Dask from moving tasks between workers: here it gains nothing."""


def group_arguments(group: str = announcing.AUTO) -> list[str]:
    """Arguments of ``dask worker`` that make it the worker of a group.

    Parameters
    ----------
    group
        Name of the group; ``auto``: named after the worker, if that sees accelerators; ``first``:
        named after the first of the workers one command starts, the others get none.
    """
    threads = [] if group == announcing.FIRST else ["--nthreads", str(PLACES)]
    return [*threads, "--memory-limit", "0", "--preload", PRELOAD, "--plexrl-group", group]


def ssh_workers(
    groups: Mapping[str, str],
    cpu_hosts: Sequence[str],
    *,
    cpu_threads: int = 8,
    connect_options: Mapping[str, Any] | None = None,
    remote_python: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Workers of a `distributed.SpecCluster` that are started by SSH.

    Parameters
    ----------
    groups
        Name of each group → host of its worker.
    cpu_hosts
        Hosts of the workers for rewards, tools and drivers; one may come more than once.
    cpu_threads
        Threads of each of those.
    connect_options
        Of ``asyncssh.connect``, such as ``{"known_hosts": None}``.
    remote_python
        Python there; by default the one here.

    Raises
    ------
    InputError
        There is no group, or no host for drivers.
    """
    if not groups or not cpu_hosts:
        raise InputError(
            f"{len(groups)} groups and {len(cpu_hosts)} hosts for drivers and tools; give at least "
            "one of each"
        )

    def spec(host: str, options: Mapping[str, Any]) -> dict[str, Any]:
        given: dict[str, Any] = {
            "address": host,
            "connect_options": dict(connect_options or {}),
            "kwargs": {"memory_limit": 0, **options},
            "worker_class": "distributed.Nanny",
        }
        if remote_python is not None:
            given["remote_python"] = remote_python
        return {"cls": ssh.Worker, "options": given}

    workers = {
        name: spec(host, {"nthreads": PLACES, "resources": {RESOURCE_PREFIX + name: PLACES}})
        for name, host in groups.items()
    }
    for index, host in enumerate(cpu_hosts):
        workers[f"cpu-{index}"] = spec(host, {"nthreads": cpu_threads})
    return workers


def jobqueue_options(
    *, cores: int, memory: str, cpu_workers: int = 1, directives: Sequence[str] = ()
) -> dict[str, Any]:
    """Keyword arguments of any cluster of dask-jobqueue; each of its jobs brings one group.

    Parameters
    ----------
    cores, memory
        Of one job of the queue.
    cpu_workers
        Workers for rewards, tools and drivers beside the group's in each job.
    directives
        Further lines of the job's head, such as ``["--gres=gpu:4"]``.

    Raises
    ------
    InputError
        A job would bring no worker for drivers, or has fewer cores than workers.
    """
    processes = 1 + cpu_workers
    if cpu_workers < 1 or cores < processes:
        raise InputError(
            f"cores={cores}, cpu_workers={cpu_workers}: give each job of the queue at least one "
            "worker beside its group's, and a core for each"
        )
    return {
        "cores": cores,
        "memory": memory,
        "processes": processes,
        "worker_extra_args": group_arguments(announcing.FIRST),
        "job_extra_directives": list(directives),
    }


def kubernetes_objects(
    name: str,
    image: str,
    *,
    groups: int,
    gpus: int = 0,
    cpu_workers: int = 1,
    cpu_threads: int = 8,
) -> list[dict[str, Any]]:
    """Objects of the Dask operator: a cluster with its ordinary workers, and one of groups.

    Parameters
    ----------
    name
        Of the cluster.
    image
        Container image with PlexRL in it.
    groups
        Number of groups, one pod each.
    gpus
        Accelerators of each group; 0 asks for none.
    cpu_workers, cpu_threads
        Workers for rewards, tools and drivers, and threads of each.

    Raises
    ------
    InputError
        A number is out of range.
    """
    if groups < 1 or cpu_workers < 1 or cpu_threads < 1 or gpus < 0:
        raise InputError(
            f"groups={groups}, cpu_workers={cpu_workers}, cpu_threads={cpu_threads}, gpus={gpus}; "
            "give at least 1 of each, and at least 0 gpus"
        )
    meta = {"name": name}
    cluster = {
        "apiVersion": API,
        "kind": "DaskCluster",
        "metadata": meta,
        "spec": {
            "scheduler": _scheduler(name, image),
            "worker": {
                "replicas": cpu_workers,
                "spec": _pod(image, ["--nthreads", str(cpu_threads), "--memory-limit", "0"], 0),
            },
        },
    }
    # With no accelerators to see, a group has to be named after its pod all the same.
    choice = announcing.AUTO if gpus else "$(DASK_WORKER_NAME)"
    group = {
        "apiVersion": API,
        "kind": "DaskWorkerGroup",
        "metadata": {"name": f"{name}-groups"},
        "spec": {
            "cluster": name,
            "worker": {"replicas": groups, "spec": _pod(image, group_arguments(choice), gpus)},
        },
    }
    return [cluster, group]


def _pod(image: str, arguments: list[str], gpus: int) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "worker",
        "image": image,
        "args": ["dask-worker", "--name", "$(DASK_WORKER_NAME)", *arguments],
    }
    if gpus:
        container["resources"] = {"limits": {GPU: gpus}}
    return {"containers": [container]}


def _scheduler(name: str, image: str) -> dict[str, Any]:
    ports = [("tcp-comm", 8786), ("http-dashboard", 8787)]
    return {
        "spec": {
            "containers": [
                {
                    "name": "scheduler",
                    "image": image,
                    "args": ["dask-scheduler"],
                    "env": [{"name": NO_STEALING, "value": "False"}],
                    "ports": [
                        {"name": port, "containerPort": number, "protocol": "TCP"}
                        for port, number in ports
                    ],
                    "readinessProbe": {"httpGet": {"port": "http-dashboard", "path": "/health"}},
                }
            ]
        },
        "service": {
            "type": "ClusterIP",
            "selector": {"dask.org/cluster-name": name, "dask.org/component": "scheduler"},
            "ports": [
                {"name": port, "protocol": "TCP", "port": number, "targetPort": port}
                for port, number in ports
            ],
        },
    }
