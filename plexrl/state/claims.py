"""Who writes a job at a URL, where no lock ends with its process: claims that run out.

A claim spares two clusters that run one job by mistake the work of finding out late. Safety
does not rest on it: a commit is conditional, whoever claims what.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from threading import Lock

from plexrl.clock import Clock, system_clock
from plexrl.errors import StoreError
from plexrl.state.buckets import Bucket
from plexrl.state.folder import MARKER, check_format, marker, name_to_path

CLAIMS = ".claims/"
CLAIM_TTL_S = 60.0
"""Seconds without renewal after which a claim is void: longer than a pause between two writes
of a busy job mostly is, short enough to wait for after a crash."""
_RENEW_S = CLAIM_TTL_S / 4


class Claims:
    """Claims of one holder; safe to use from several threads.

    Parameters
    ----------
    holder
        Whose claims they are: all processes of a cluster give one name, so that a job may move
        between them. None: this process alone.
    read_only
        Refuse every claim.

    Raises
    ------
    StoreError
        The store is of another format, or there is none to read.
    """

    def __init__(
        self,
        bucket: Bucket,
        holder: str | None,
        *,
        read_only: bool = False,
        clock: Clock = system_clock,
    ):
        self._bucket = bucket
        self._read_only = read_only
        self._holder = holder or uuid.uuid4().hex
        self._clock = clock
        self._renewed_s: dict[str, float] = {}
        self._lock = Lock()
        try:
            check_format(bytes(bucket.get(MARKER)), bucket.url)
        except FileNotFoundError:
            # A new store: the first claim marks it.
            if read_only:
                raise StoreError(f"no store at {bucket.url}; give the URL of a store") from None

    def claim(self, job: str) -> None:
        """Make sure that no other holder writes this job.

        Raises
        ------
        StoreError
            Another one does, the store was opened read-only, or the service refuses.
        """
        if self._read_only:
            raise StoreError(f"{self._bucket.url} was opened read-only; open it for writing")
        with self._lock:
            now_s = self._clock()
            if now_s - self._renewed_s.get(job, -CLAIM_TTL_S) < _RENEW_S:
                return
            if not self._renewed_s:
                self._bucket.put(MARKER, marker())
            content = self._content()
            try:
                self._bucket.put(_key(job), content, is_new=True)
            except FileExistsError:
                self._check_void(job, now_s)
                self._bucket.put(_key(job), content)
            self._renewed_s[job] = now_s

    def _content(self) -> bytes:
        facts = {"holder": self._holder, "host": socket.gethostname(), "pid": os.getpid()}
        return json.dumps(facts).encode()

    def _check_void(self, job: str, now_s: float) -> None:
        try:
            content, modified_unix_s = self._bucket.get_dated(_key(job))
        except FileNotFoundError:
            return  # released meanwhile
        try:
            facts = json.loads(bytes(content))
        except ValueError:
            return  # nobody can renew it, so nobody holds it
        age_s = now_s - modified_unix_s
        if facts.get("holder") == self._holder or age_s > CLAIM_TTL_S:
            return
        raise StoreError(
            f"job {job!r} in {self._bucket.url} is claimed for writing by process "
            f"{facts.get('pid')} on {facts.get('host')}, {age_s:.0f} s ago; stop it, wait "
            f"{CLAIM_TTL_S:.0f} s after its last write, or give another store or job name"
        )

    def release(self, job: str) -> None:
        """Let another holder write this job."""
        with self._lock:
            if self._renewed_s.pop(job, None) is None:
                return
            try:
                content = bytes(self._bucket.get(_key(job)))
            except FileNotFoundError:
                return
            if json.loads(content).get("holder") == self._holder:
                self._bucket.delete([_key(job)])

    def release_all(self) -> None:
        """Let other holders write all jobs."""
        for job in list(self._renewed_s):
            self.release(job)


def _key(job: str) -> str:
    return f"{CLAIMS}{name_to_path(job)}.json"
