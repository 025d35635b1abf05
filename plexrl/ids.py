"""Names people give and ids we make: what is legal, and how one is told from another."""

from __future__ import annotations

import re
import secrets

from plexrl.errors import JobError

JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""A job's name is a folder in the store and a word in tables."""

MAX_NAME_LENGTH = 64
"""Characters; leaves room for a suffix in any file system's 255 bytes."""


def check_job_name(name: object) -> str:
    """The name, if it may be one of a job.

    Raises
    ------
    JobError
        It is no text, empty, too long, or has characters that a folder or a table cannot take.
    """
    if not isinstance(name, str) or not JOB_NAME.fullmatch(name):
        raise JobError(
            f"job name {name!r} is not usable; use letters, digits, '-', '_' and '.', and start "
            "with a letter or digit"
        )
    if len(name) > MAX_NAME_LENGTH:
        raise JobError(
            f"job name {name[:20]!r}... has {len(name)} characters; use at most {MAX_NAME_LENGTH}"
        )
    return name


def new_run_id() -> str:
    """An id for one life of a cluster: eight hexadecimal digits, random."""
    return secrets.token_hex(4)
