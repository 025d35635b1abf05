"""Body of the planner's process: solves one request after the other for its parent.

Started as ``python -m plexrl.planning.child FD BYTES`` by `plexrl.planning.process`.
"""

from __future__ import annotations

import os
import resource
import sys
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection

from plexrl.planning.process import Failed
from plexrl.planning.proposals import PlanRequest, solve

NICENESS = 10
"""Half of the range: a plan for jobs that run must not take the core of what it plans for."""


def serve(connection: Connection) -> None:
    """Answer requests until the parent is gone."""
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        try:
            # The parent has what it asked.
            answer: object = replace(solve(request), request=_bare(request))
        except Exception as error:  # noqa: BLE001 (the parent raises it)
            answer = Failed("".join(traceback.format_exception(error)))
        try:
            connection.send(answer)
        except OSError:
            return


def _bare(request: PlanRequest) -> PlanRequest:
    return replace(
        request, jobs=(), groups=(), previous=None, open_groups=frozenset(), left={}, warm={}
    )


def main() -> None:
    """Serve on the file descriptor given first, within the address space given second."""
    fd, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    serve(Connection(fd))


if __name__ == "__main__":
    main()
