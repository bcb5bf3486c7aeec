"""Parse command line arguments into values, and define options that commands share."""

import re
from datetime import datetime, timedelta

import click

from rabbitdelay import duration
from rabbitdelay.core.jobs import validation
from rabbitdelay.core.jobs.headers import check as check_headers
from rabbitdelay.errors import InvalidJob

allow_reply_to_option = click.option(
    "--allow-reply-to",
    metavar="QUEUE",
    multiple=True,
    help="Queue of another program that a job may name as its reply_to: a name, or a pattern such "
    "as myapp.*. Repeatable.",
)
_BYTES_PER_UNIT = {"b": 1, "k": 1024, "m": 1024 * 1024}


def read_duration(text: str) -> timedelta:
    """Parse `30`, `250ms` or `1h30m`."""
    try:
        return timedelta(milliseconds=duration.parse(text, what="duration"))
    except InvalidJob as error:
        raise click.BadParameter(str(error)) from None
    except OverflowError:
        raise click.BadParameter(f"{text!r} is too long") from None


def read_size(text: str) -> int:
    """Parse `65536`, `512KiB` or `8MiB`, in bytes."""
    match = re.fullmatch(r"(\d{1,12})\s*(b|k|kib|kb|m|mib|mb)?", text.strip().lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size like 65536, 512KiB or 8MiB")
    return int(match[1]) * _BYTES_PER_UNIT[(match[2] or "b")[0]]


def read_single_backoff(text: str) -> timedelta:
    """Parse one duration. A job carries no schedule, only a handler has one."""
    if "," in text:
        raise click.BadParameter(
            f"{text!r} is a schedule, and a job takes a single delay: give schedules to "
            "`consume --backoff`, or to the handler"
        )
    return read_duration(text)


def read_backoff(text: str) -> timedelta | tuple[timedelta, ...]:
    """Parse one duration, or a fixed schedule of comma-separated durations."""
    if "," not in text:
        return read_duration(text)
    return tuple(read_duration(wait) for wait in text.removesuffix(",").split(","))


def read_delay(text: str) -> timedelta:
    """Parse a duration that may be negative, which means now."""
    try:
        return timedelta(milliseconds=duration.parse_delay(text, what="duration"))
    except InvalidJob as error:
        raise click.BadParameter(str(error)) from None
    except OverflowError:
        raise click.BadParameter(f"{text!r} is too long") from None


def read_moment(text: str) -> datetime:
    """Parse `2027-01-01T00:00:00Z`; a time without a zone is ambiguous and rejected."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time like 2027-01-01T00:00:00Z") from None
    if moment.utcoffset() is None:
        raise click.BadParameter(f"{text!r} has no time zone: add Z, or an offset like +02:00")
    return moment


def read_headers(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str] | None:
    """Parse `NAME=VALUE` texts into the headers of a job, or None if there are none."""
    headers: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, such as trace-id=4bf92f")
        if name in headers:
            raise click.BadParameter(f"header {name!r} is given twice")
        headers[name] = value
    try:
        return check_headers(headers) or None
    except InvalidJob as error:
        raise click.BadParameter(str(error)) from None


def read_id(text: str) -> str:
    """Check the id of a job."""
    try:
        return validation.check_id(text)
    except InvalidJob as error:
        raise click.BadParameter(str(error)) from None


def read_topic(text: str) -> str:
    """Check the name of a topic."""
    try:
        return validation.check_topic(text)
    except InvalidJob as error:
        raise click.BadParameter(str(error)) from None


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
delay_option = click.option(
    "--delay",
    type=read_delay,
    metavar="DURATION",
    help="Delay, as 30m, 1h30m, 250ms or seconds; negative means now.",
)
at_option = click.option(
    "--at",
    type=read_moment,
    metavar="TIME",
    help="Due time with its time zone: 2027-01-01T00:00:00Z.",
)
