"""The pages as HTML: views in, markup out; pure, so that tests read what browsers show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plexrl.core.status import ClusterStatus, JobState
from plexrl.dashboard.palette import job_colours
from plexrl.dashboard.tally import Tally
from plexrl.dashboard.views.jobs import JobLine, headline, job_lines
from plexrl.dashboard.views.plan import (
    CYCLES_SHOWN,
    CycleLine,
    PlanSummary,
    SolveLine,
    SolveLog,
    median_ratio,
    plan_summary,
)
from plexrl.dashboard.views.savings import BASELINE, saving_lines, saving_total
from plexrl.dashboard.views.state import (
    GROUPS_PER_PAGE,
    STATES_SHOWN,
    Health,
    MemoryLine,
    health,
    memory_lines,
    residencies,
    traffic_lines,
)
from plexrl.markup import (
    dot,
    figures,
    nbytes,
    number,
    off,
    page,
    seconds,
    spark,
    table,
    text,
    title,
    track,
)

SAVINGS_SHOWN = 64
"""Jobs listed on the page of savings; the total counts all."""

INFEASIBLE = "infeasible"
"""Status of a solve whose slowdown limits cannot hold; its plan leaves them out."""

_HELD = (
    "An LLM function that waits for its group shows as no-worker on Dask's own pages: the "
    "scheduler holds it back until it has its lease. “waits for” says what each job waits for."
)

_STATE_CLASS = {
    JobState.STARTING: "dim",
    JobState.RUNNING: "good",
    JobState.PAUSED: "warn",
    JobState.FINISHED: "dim",
    JobState.FAILED: "bad",
    JobState.CANCELLED: "dim",
}

_JOB_HEADERS = (
    "job",
    "state",
    "group",
    "iteration",
    "#s/iteration",
    "reward",
    "",
    "#slowdown",
    "#limit",
    "#staleness",
    "phase",
    "~waits for",
    "#ends in",
)


def _unlisted(total: int, shown: int, what: str) -> str:
    """How many rows a table leaves out; empty if none."""
    return f"<p>{total - shown} more {what}, counted but not listed</p>" if total > shown else ""


def colours_of(status: ClusterStatus) -> dict[str, str]:
    """A colour for each job, the same on every page."""
    return job_colours([job.name for job in status.jobs])


def jobs_page(
    status: ClusterStatus, tally: Tally, curves: Mapping[str, Sequence[float]], number_: int = 0
) -> str:
    """The page of jobs.

    Parameters
    ----------
    status, tally
        One reading.
    curves
        Job → reward curve, of the jobs on the page.
    number_
        Which page of jobs, from 0.
    """
    lines = job_lines(status, tally, number_)
    colours = colours_of(status)
    rows = [_job_row(line, colours[line.name], curves.get(line.name, ())) for line in lines]
    return page(
        title("Jobs", headline(status, tally)),
        table(_JOB_HEADERS, rows),
        f"<p style='margin-top:10px'>{text(_HELD)} Slowdown is an estimate: the mean iteration "
        "over the same without waits for a group and swaps.</p>",
    )


def _job_row(line: JobLine, colour: str, curve: Sequence[float]) -> list[str]:
    is_bad = line.state is JobState.FAILED
    share = line.iteration / max(1, line.iterations)
    reward = "–"
    if line.reward_first is not None and line.reward_last is not None:
        reward = f"{line.reward_first:.2f} → {line.reward_last:.2f}"
    slow = number(line.slowdown)
    return [
        dot(colour) + text(line.name),
        f'<span class="{_STATE_CLASS[line.state]}">{text(line.state)}</span>',
        text(line.group).replace("+", " + "),
        f"{track(share, colour)}{line.iteration}/{line.iterations}",
        number(line.iteration_s),
        reward,
        spark(curve, colour),
        f'<span class="bad">{slow}</span>' if line.is_over_limit else slow,
        number(line.slowdown_limit, 1),
        "–" if line.staleness is None else str(line.staleness),
        text(line.phase),
        text(line.error if is_bad else line.waits_for),
        seconds(line.left_s),
    ]


def state_page(status: ClusterStatus, tally: Tally, number_: int = 0) -> str:
    """The page of states; `number_` says which page of groups, from 0."""
    groups = status.groups[number_ * GROUPS_PER_PAGE : (number_ + 1) * GROUPS_PER_PAGE]
    memory = [_memory_row(line) for line in memory_lines(groups)]
    moves = [
        [
            f"{text(line.source)} → {text(line.target)}",
            str(line.num_moves),
            nbytes(line.num_bytes),
            seconds(line.seconds),
            f"{nbytes(line.bytes_per_s)}/s",
        ]
        for line in traffic_lines(status.groups)
    ]
    found = residencies(groups)
    states = [
        [text(r.state), text(r.group), *("●" if tier in r.tiers else "" for tier in _TIERS)]
        for r in found[:STATES_SHOWN]
    ]
    used = sum(group.host_used_bytes for group in status.groups)
    stored = sum(group.store.num_bytes for group in status.groups)
    told = (
        f"groups: {len(status.groups)}, {nbytes(used)} of states in host memory, "
        f"{nbytes(stored)} in the store"
    )
    return page(
        title("State", told),
        _health(health(status, tally)),
        "<h3>Movements between tiers, all groups</h3>",
        table(("from → to", "#moves", "#bytes", "#time", "#speed"), moves),
        "<h3>Groups</h3>",
        table(_MEMORY_HEADERS, memory),
        "<h3>Residency</h3>",
        table(("state", "group", *_TIERS), states),
        _unlisted(len(found), STATES_SHOWN, "states"),
    )


_MEMORY_HEADERS = (
    "group",
    "host memory used",
    "#budget",
    "#in the store",
    "#engine process",
    "#engine starts",
    "~trouble",
)
_TIERS = ("device", "host", "store")


def _memory_row(line: MemoryLine) -> list[str]:
    share = line.used_bytes / line.budget_bytes if line.budget_bytes else 0.0
    return [
        text(line.group),
        track(share, "#0072b2") + nbytes(line.used_bytes),
        nbytes(line.budget_bytes),
        nbytes(line.store_bytes),
        "–" if line.engine_pid is None else str(line.engine_pid),
        str(line.num_engine_starts),
        "; ".join(
            f'<span class="{kind}">{text(told)}</span>'
            for kind, told in (("bad", line.warning), ("warn", line.draining))
            if told
        ),
    ]


def _health(found: Health) -> str:
    entries = (
        ("errors in the scheduler plugin", found.num_plugin_errors),
        ("leases that failed", found.num_failed_leases),
        ("leases lost with a worker", found.num_lost_leases),
        ("engine restarts", found.num_engine_restarts),
        ("damaged versions", found.num_damaged),
        ("failed writes to the store", found.num_failed_writes),
        ("groups with a trouble", found.num_warnings),
    )
    word = (
        '<span class="good">all is well</span>'
        if found.is_good
        else '<span class="bad">needs a look</span>'
    )
    return f"<h3>Integrity: {word}</h3>" + figures((str(count), name) for name, count in entries)


def plan_page(status: ClusterStatus, solves: SolveLog) -> str:
    """The page of the plan."""
    plan = plan_summary(status)
    cycles = solves.cycles()
    typical = median_ratio(cycles)
    off_by = (
        "no iteration of a planned job has ended under it yet"
        if typical is None
        else f"cycles of the median job take {typical:.2f} times what was predicted"
    )
    return page(
        title("Plan", f"last solved because: {plan.reason}" if plan.reason else "no plan yet"),
        figures(_plan_figures(plan)),
        "<h3>Predicted against actual, plan in force</h3>",
        f"<p>{text(off_by)}</p>",
        table(
            ("job", "#predicted cycle, s", "#actual mean, s", "actual ÷ predicted", "#iterations"),
            [_cycle_row(line) for line in cycles[:CYCLES_SHOWN]],
        ),
        _unlisted(len(cycles), CYCLES_SHOWN, "jobs"),
        "<h3>Solves, newest first</h3>",
        table(_SOLVE_HEADERS, [_solve_row(line) for line in solves.lines()]),
    )


_SOLVE_HEADERS = (
    "#number",
    "~reason",
    "status",
    "#cycle, s",
    "#bound, s",
    "#actual ÷ predicted",
    "#took, s",
    "verified",
    "#at, s",
)


def _plan_figures(plan: PlanSummary) -> tuple[tuple[str, str], ...]:
    return (
        (plan.status, "status"),
        (seconds(plan.objective_s), "cycle (objective)"),
        (seconds(plan.bound_s), f"proven bound ({plan.bound_class.replace('_', ' ') or 'none'})"),
        ("–" if plan.gap is None else f"{plan.gap:.1%}", "gap"),
        (seconds(plan.age_s), "age"),
        (_yes(plan), "verified"),
        (str(plan.num_solves), "solves"),
        (str(plan.num_moves), "moves"),
    )


def _yes(plan: PlanSummary) -> str:
    if plan.num_solves == 0:
        return "–"
    return "yes" if plan.is_verified else "no"


def _solve_row(line: SolveLine) -> list[str]:
    return [
        str(line.number),
        text(line.reason),
        '<span class="warn">infeasible</span>' if line.status == INFEASIBLE else text(line.status),
        number(line.objective_s, 3),
        number(line.bound_s, 3),
        number(line.ratio),
        number(line.seconds),
        "yes" if line.is_verified else '<span class="bad">no</span>',
        number(line.adopted_s, 1),
    ]


def _cycle_row(line: CycleLine) -> list[str]:
    return [
        text(line.job),
        number(line.predicted_s, 3),
        number(line.actual_s, 3),
        "–" if line.ratio is None else off(line.ratio) + number(line.ratio),
        str(line.num_iterations),
    ]


def savings_page(status: ClusterStatus, tally: Tally) -> str:
    """The page of savings."""
    lines = saving_lines(status, tally)
    total = saving_total(status, lines)
    colours = colours_of(status)
    rows = [
        [
            dot(colours[line.job]) + text(line.job),
            str(line.num_iterations),
            seconds(line.dedicated_s),
            seconds(line.held_s),
            track(line.idle_share, colours[line.job]) + f"{line.idle_share:.0%}",
        ]
        for line in lines[:SAVINGS_SHOWN]
    ]
    entries = (
        ("–" if total.saving is None else f"{total.saving:.0%}", "group-time saved"),
        (seconds(total.reserved_s), "group-time reserved"),
        (seconds(total.dedicated_s), "dedicated groups would take"),
        (f"{total.busy_share:.0%}", "of the reserved time under a lease"),
    )
    return page(
        title("Savings", f"against {BASELINE}; the time alone is estimated from measured waits"),
        figures(entries),
        table(("job", "#iterations", "#alone", "#held", "idle when alone"), rows),
        _unlisted(len(lines), SAVINGS_SHOWN, "jobs"),
    )
