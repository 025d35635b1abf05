"""What survives faults: rows by part of PlexRL, counts by kind of fault."""

from __future__ import annotations

import faulthandler
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from benchmarks.contract import BenchmarkResult, Progress
from benchmarks.faults import clients, disks, lives, rows, separate, starts, state
from benchmarks.faults.toll import Toll
from benchmarks.faults.victims import Moment

SEED = 0
LIMIT_S = 900
"""Seconds after which a row is broken off: every wait in it has a limit, all of them far less."""

Row = Callable[[bool, Progress], Mapping[str, float]]
"""Injects the faults of one part; gives figures, ``faults_injected`` among them."""


def state_faults(quick: bool, progress: Progress) -> Mapping[str, float]:
    """Disks and processes against the store."""
    progress("state: torn writes, bit flips, full and slow disks, vanished files, kills")
    tally = state.inject(20 if quick else 180, 1 if quick else 3, SEED)
    return {
        "faults_injected": float(tally.injected.total()),
        "corrupt_admitted": float(tally.num_corrupt_admitted),
        "committed_versions_lost": float(tally.num_lost),
        "commits_interrupted": float(tally.num_commits_interrupted),
        **{f"state_{kind}": float(count) for kind, count in sorted(tally.injected.items())},
    }


def live(
    name: str, strike: rows.Strike, moments: Sequence[Moment], num: int, num_quick: int
) -> Row:
    """A row whose faults strike a cluster at work."""

    def run(quick: bool, progress: Progress) -> Mapping[str, float]:
        toll = Toll(name, progress)
        rows.strike_while_jobs_run(toll, strike, moments, num_quick if quick else num, SEED)
        return toll.figures()

    return run


def scheduler_kills(quick: bool, progress: Progress) -> Mapping[str, float]:
    """The process of scheduler and nannies is killed, and what it ran is resumed."""
    toll = Toll("scheduler", progress)
    lives.strike(toll, 1 if quick else 6, SEED)
    return toll.figures()


def driver_kills(quick: bool, progress: Progress) -> Mapping[str, float]:
    """Workers are killed while the driver of a job starts in one of them."""
    toll = Toll("driver", progress)
    starts.strike(toll, 2 if quick else 12, SEED)
    return toll.figures()


def nanny_kills(quick: bool, progress: Progress) -> Mapping[str, float]:
    """Nannies, and at last a scheduler, of a cluster that was started apart."""
    toll = Toll("nanny", progress)
    separate.strike(toll, 3 if quick else 8, SEED)
    return toll.figures()


def client_kills(quick: bool, progress: Progress) -> Mapping[str, float]:
    """Clients are killed around their submission."""
    toll = Toll("client", progress)
    clients.strike(toll, 2 if quick else 10, SEED)
    return toll.figures()


def store_faults(quick: bool, progress: Progress) -> Mapping[str, float]:
    """A store that is full, read-only, gone or slow while jobs run."""
    toll = Toll("store", progress)
    figures = disks.strike(toll, 1 if quick else 2)
    return {**toll.figures(), **figures, "kills": 0.0}


ANY = (Moment.ANY,)
ROWS: dict[str, Row] = {
    "state": state_faults,
    "engine": live("engine", rows.strike_engine, rows.EVERYWHERE, 26, 4),
    "engine_stuck": live("engine_stuck", rows.stop_engine, (Moment.ROLLOUT, Moment.TRAIN), 3, 1),
    "group_worker": live("group_worker", rows.strike_group_worker, rows.EVERYWHERE, 18, 4),
    "ordinary_worker": live("ordinary_worker", rows.strike_ordinary_worker, rows.EVERYWHERE, 20, 3),
    "driver": driver_kills,
    "moving": live("moving", rows.strike_move, ANY, 9, 3),
    "store": store_faults,
    "scheduler": scheduler_kills,
    "nanny": nanny_kills,
    "client": client_kills,
    "solver": live("solver", rows.strike_solver, ANY, 36, 3),
    "reward": live("reward", rows.strike_reward, ANY, 90, 6),
}
"""Row → what injects its faults; figures of the same name are added up."""


def run(quick: bool, progress: Progress, only: str | None = None) -> BenchmarkResult:
    """Inject faults into every part, or into one of `ROWS`."""
    figures: dict[str, float] = {"rows_failed": 0.0}
    for name, row in ROWS.items():
        if only in {None, name}:
            for figure, value in _run_row(name, row, quick, progress).items():
                figures[figure] = figures.get(figure, 0.0) + value
    return BenchmarkResult("faults", figures, {}, SEED)


def _run_row(name: str, row: Row, quick: bool, progress: Progress) -> Mapping[str, float]:
    """Figures of one row; one that breaks off is counted and costs no other row its figures."""
    began_s = time.monotonic()
    try:
        with _limited(name):
            figures = row(quick, progress)
    except TimeoutError as error:
        progress(f"{name}: hang: {error}")
        figures = {"hangs": 1.0, "rows_failed": 1.0}
    except Exception as error:  # noqa: BLE001 (whatever breaks a row shall be counted)
        progress(f"{name}: broke off: {error!r}")
        figures = {"rows_failed": 1.0}
    return {**figures, f"{name}_wall_s": time.monotonic() - began_s}


@contextmanager
def _limited(name: str) -> Iterator[None]:
    """Break off what takes longer than any row; says where every thread is."""

    def break_off(*_: object) -> None:
        faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
        raise TimeoutError(f"row {name} did not end within {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, break_off)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
