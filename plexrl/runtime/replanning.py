"""Plans again and again while jobs run: asks when it is due, solves aside, adopts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

from plexrl.clock import Clock
from plexrl.planning.planner import PlanRequest, Proposal
from plexrl.runtime.coordinator import Coordinator
from plexrl.runtime.logs import log_plan

PLANNING_S = 0.1
"""Seconds between looks whether a new plan is due."""


async def replan_for_ever(
    coordinator: Coordinator,
    solve: Callable[[PlanRequest], Proposal],
    clock: Clock,
    guarded: Callable[[str], AbstractContextManager[None]],
    adopted: Callable[[Proposal], None],
) -> None:
    """Run the planning loop until it is cancelled.

    Parameters
    ----------
    coordinator
        Whose planner is asked, and which adopts.
    solve
        Answers a request; blocks, so a thread runs it.
    guarded
        Logs and counts an error instead of ending the loop.
    adopted
        Called with a plan that came into force.
    """
    planner = coordinator.planner
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(PLANNING_S)
        with guarded("plan"):
            now_s = clock() - coordinator.epoch_s
            reason = planner.due(now_s)
            if reason is None:
                continue
            request = planner.request(reason, now_s, coordinator.groups.state_bytes_s())
            num_solves = planner.chronicle.num_solves
            proposal = await loop.run_in_executor(None, solve, request)
            if planner.chronicle.num_solves != num_solves:
                # An operator's plan came into force, which this one does not know.
                planner.ask(reason)
                continue
            coordinator.adopt(proposal, clock())
            log_plan(proposal)
            adopted(proposal)
