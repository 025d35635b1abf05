"""The pages that are text and tables: jobs, state, plan, savings."""

from __future__ import annotations

from plexrl.dashboard import fragments
from plexrl.dashboard.pages.page import Leaf
from plexrl.dashboard.source import Cockpit
from plexrl.dashboard.views import jobs, state


class JobsPage(Leaf):
    """How far each job is and what it waits for."""

    def __init__(self, cockpit: Cockpit) -> None:
        self._curves: dict[str, tuple[int, tuple[float, ...]]] = {}
        super().__init__(cockpit)

    def num_choices(self) -> tuple[int, int, str]:
        """How many jobs there are."""
        return len(self._cockpit.read().status.jobs), jobs.ROWS_PER_PAGE, "jobs"

    def render(self, number: int) -> str:
        """The page as HTML."""
        reading = self._cockpit.read()
        curves = {
            line.name: self._curve(line.name, line.iteration)
            for line in jobs.job_lines(reading.status, reading.tally, number)
        }
        return fragments.jobs_page(reading.status, reading.tally, curves, number)

    def _curve(self, job: str, iteration: int) -> tuple[float, ...]:
        """Reward curve of a job, made anew only after another iteration."""
        known = self._curves.get(job)
        if known is None or known[0] != iteration:
            known = (iteration, jobs.reward_curve(self._cockpit.iterations(job)))
            self._curves[job] = known
        return known[1]


class StatePage(Leaf):
    """What lies in which tier."""

    def num_choices(self) -> tuple[int, int, str]:
        """How many groups there are."""
        return len(self._cockpit.read().status.groups), state.GROUPS_PER_PAGE, "groups"

    def render(self, number: int) -> str:
        """The page as HTML."""
        reading = self._cockpit.read()
        return fragments.state_page(reading.status, reading.tally, number)


class PlanPage(Leaf):
    """The plan in force and the solves before it."""

    def render(self, number: int) -> str:
        """The page as HTML."""
        del number
        return fragments.plan_page(self._cockpit.read().status, self._cockpit.solves())


class SavingsPage(Leaf):
    """What sharing saves."""

    def render(self, number: int) -> str:
        """The page as HTML."""
        del number
        reading = self._cockpit.read()
        return fragments.savings_page(reading.status, reading.tally)
