"""Reads the option ``--start STORE:JOB@VERSION``, and looks whether that version is there."""

from __future__ import annotations

from pathlib import Path

from dataflow.jobs import JobSpec
from dataflow.starts import StartVersion
from plexrl.cli.stores import opened
from plexrl.errors import InputError
from plexrl.runtime.starts import check_start, stored_versions, trainable_models
from plexrl.state.places import is_url


def parse_start(text: str) -> StartVersion:
    """What ``STORE:JOB@VERSION`` names.

    Raises
    ------
    InputError
        It is not of that form.
    """
    store, colon, rest = text.rpartition(":")
    job, at, version = rest.rpartition("@")
    if not (store and colon and job and at and version.isdecimal()):
        raise InputError(
            f"--start is {text!r}; write STORE:JOB@VERSION, such as plexrl-store:calculator@40"
        )
    where = store if is_url(store) else str(Path(store).absolute())
    return StartVersion(job, int(version), where)


def read_start(text: str, jobs: list[JobSpec]) -> StartVersion:
    """The version named, once it is certain that all jobs can start from it.

    Raises
    ------
    InputError
        The text is of another form, or the store does not hold the version.
    """
    start = parse_start(text)
    with opened(start.store) as store:
        for job in jobs:
            check_start(start, stored_versions(store, start.job, trainable_models(job)))
    return start
