"""Log output of a worker, as JSON lines or as plain text."""

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime

from rabbitdelay.cli.output.text import printable
from rabbitdelay.engine.work.base_worker import WorkerStats

LOGGER = "rabbitdelay"
FIELDS = (
    *("job_id", "topic", "attempt", "lateness_ms", "took_ms"),
    *("error", "error_type", "retry_in_ms", "reason"),
    *("finished", "released", "buried", "deleted", "timed_out", "lost", "refused_replies"),
    *("lateness_p50_ms", "lateness_p99_ms"),
)
"""Additional fields of a worker's log records."""


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", None) or record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


class LineFormatter(logging.Formatter):
    """Formats each record as one line of text, without the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return printable(record.getMessage())


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the additional fields of a record."""
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}


@contextmanager
def json_log(*, every_job: bool) -> Iterator[None]:
    """Log JSON lines on stderr; finished jobs are logged only if `every_job` is set."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    if not every_job:
        handler.addFilter(_is_not_routine)
    with logging_to(handler, logging.INFO):
        yield


def log_totals(stats: WorkerStats) -> None:
    """Log the totals of a worker that has stopped."""
    totals = {name: value for name, value in asdict(stats.counts).items() if name in FIELDS}
    logging.getLogger(LOGGER).info("totals", extra=totals)


def _is_not_routine(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or not hasattr(record, "job_id")


def _is_of_connection(record: logging.LogRecord) -> bool:
    return record.levelno == logging.INFO and record.name == LOGGER


@contextmanager
def plain_log() -> Iterator[None]:
    """Log plain lines on stderr: the start, the end and problems in between."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    handler.addFilter(lambda record: _is_not_routine(record) and not _is_of_connection(record))
    with logging_to(handler, logging.INFO):
        yield


@contextmanager
def logging_to(handler: logging.Handler, level: int) -> Iterator[None]:
    """Send our log to this handler only, so that each line is logged once."""
    logger = logging.getLogger(LOGGER)
    before, others = logger.level, logger.handlers[:]
    handler.setLevel(level)
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.handlers[:] = others
        logger.setLevel(before)
