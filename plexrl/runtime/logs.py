"""Log lines that machines can read: one JSON object each, with job, iteration and version.

Dask's own configuration chooses the format::

    logging:
      version: 1
      disable_existing_loggers: false
      formatters:
        json: {"()": plexrl.runtime.logs.JsonLines}
      handlers:
        out: {class: logging.StreamHandler, formatter: json}
      loggers:
        plexrl: {level: INFO, handlers: [out]}
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from plexrl.planning.planner import Proposal
from plexrl.runtime.messages import (
    DriverEnded,
    DriverEvent,
    DriverStarted,
    IterationCommitted,
)

logger = logging.getLogger("plexrl.scheduler")

FIELDS = ("job", "group", "iteration", "version", "op", "number")
"""What a line may carry beside its text."""


class JsonLines(logging.Formatter):
    """Formats each record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_driver(event: DriverEvent) -> None:
    """Log what a driver said."""
    match event:
        case DriverStarted(job=job, index=index):
            fields = {"job": job, "iteration": index}
            logger.info("job %s starts at iteration %d", job, index, extra=fields)
        case IterationCommitted(record=record, tokens=tokens):
            version = max((token.version for token in tokens), default=None)
            fields = {"job": record.job, "iteration": record.iteration}
            if version is not None:
                fields["version"] = version
            logger.info("job %s committed iteration %d", record.job, record.iteration, extra=fields)
        case DriverEnded(job=job, error=error, why_early=why_early):
            if error:
                told = error.strip().splitlines()[0]
                logger.error("job %s failed: %s", job, told, extra={"job": job})
            else:
                early = f" early: {why_early}" * bool(why_early)
                logger.info("job %s finished%s", job, early, extra={"job": job})


def log_plan(proposal: Proposal) -> None:
    """Log a plan that came into force."""
    number, reason = proposal.request.number, proposal.request.reason
    logger.info("plan %d (%s): %s", number, proposal.status, reason, extra={"number": number})
