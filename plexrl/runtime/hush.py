"""What fails is told by the job that failed: Dask's own messages on it would drown it.

Dask's `silence_logs` mutes every stream handler it finds at its loggers, also those of the program
that starts a cluster, and gives them back wrong where two clusters overlap.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import dask.config
from distributed import Nanny


class QuietNanny(Nanny):
    """A nanny whose worker keeps its end to itself, and that leaves handlers as they are."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.silence_logs = logging.CRITICAL


@contextmanager
def hushed() -> Iterator[None]:
    """Let the handler that Dask made itself pass on nothing less than critical."""
    handlers = dask_handlers()

    def is_critical(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.CRITICAL

    for handler in handlers:
        handler.addFilter(is_critical)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_critical)


def dask_handlers() -> list[logging.Handler]:
    """The handler that Dask gave its loggers when it was imported.

    None where logging was set up before, or is by Dask's configuration.
    """
    log_format = dask.config.get("distributed.admin.log-format")
    return [
        handler
        for handler in logging.getLogger("distributed").handlers
        if type(handler) is logging.StreamHandler
        and handler.formatter is not None
        and handler.formatter._fmt == log_format  # noqa: SLF001 (nothing else tells it apart)
    ]
