"""References between the jobs of a problem file, whichever kind of file it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plexrl.errors import InputError
from plexrl.spelling import hint


def check_apart(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse jobs that are to be kept apart from what is no other job.

    Raises
    ------
    InputError
        The message begins with the path inside the file.
    """
    others = {job["name"] for job in jobs}
    for index, job in enumerate(jobs):
        seen: set[str] = set()
        for place, name in enumerate(job.get("apart_from", ())):
            if name not in others or name == job["name"]:
                raise InputError(
                    f"jobs[{index}].apart_from[{place}] is {name!r}, which is no other job; "
                    f"{hint(name, others - {job['name']})}"
                )
            if name in seen:
                raise InputError(
                    f"jobs[{index}].apart_from[{place}] is {name!r} a second time; leave it out"
                )
            seen.add(name)
