"""Whether the groups of a cluster can compute rollouts by the engines a job asks for."""

from __future__ import annotations

from distributed import Client

from dataflow.jobs import JobSpec
from plexrl.engines import vllm_settings
from plexrl.engines.protocol import EngineKind
from plexrl.errors import InputError
from plexrl.runtime.asking import ask_workers
from plexrl.runtime.gate import group_of


def check_rollout_engines(client: Client, job: JobSpec) -> None:
    """Refuse a job that asks for vLLM where a group's worker cannot import it.

    Raises
    ------
    InputError
        vLLM is missing; the message names the models, the workers and the command.
    """
    asking = [n for n, m in job.models.items() if m.rollout_engine == EngineKind.VLLM]
    if not asking:
        return
    workers = client.scheduler_info(n_workers=-1)["workers"]
    of_groups = [a for a, worker in workers.items() if group_of(worker["resources"]) is not None]
    # Asked of the workers: a client may well run where no engine does.
    found = ask_workers(client, vllm_settings.is_installed, workers=of_groups)
    without = sorted(address for address, is_there in found.items() if not is_there)
    if without:
        names = ", ".join(repr(name) for name in asking)
        raise InputError(
            vllm_settings.missing(f"job {job.name!r} (model {names})")
            + f"; workers without it: {', '.join(without)}"
        )
