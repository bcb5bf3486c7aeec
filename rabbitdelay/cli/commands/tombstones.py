"""`rabbitdelay tombstones`: show the number of tombstones and their cost."""

import time
from typing import Any

import click

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.deletes import known_deletes
from rabbitdelay.cli.options import json_option
from rabbitdelay.cli.output.console import print_json
from rabbitdelay.cli.output.text import moment, relative
from rabbitdelay.engine.deletes.known_deletes import TombstoneStats

_NOTHING = TombstoneStats(0, 0, None, None, 0, ())
_MEGABYTE = 1_000_000


@click.command(short_help="Show the number of tombstones and their cost.")
@json_option
@pass_settings
def tombstones(settings: Settings, *, as_json: bool) -> None:
    """Read the log of deletes to its end, as consumers do, and show the tombstones in it.

    A tombstone records a deleted id for as long as a job with that id may still become ready.
    """
    settings.require_namespace()
    began = time.monotonic()
    with known_deletes(settings) as log_reader:
        took_seconds = time.monotonic() - began
        known = _NOTHING if log_reader is None else log_reader.known.stats()
    if as_json:
        print_json(_as_json(known, took_seconds))
    else:
        _print(known, took_seconds)


def _print(known: TombstoneStats, took_seconds: float) -> None:
    facts = {
        "tombstones": f"{known.count:,}",
        "memory": f"{known.memory_bytes / _MEGABYTE:,.1f} MB in each consumer",
        "oldest delete": _when(known.oldest_ms),
        "last snapshot": _when(known.snapshot_ms),
        "read": f"{known.records:,} records in {took_seconds:.1f} s",
        "paused topics": ", ".join(known.paused) or "none",
    }
    for name, fact in facts.items():
        click.echo(f"{name:15}{fact}")


def _when(time_ms: int | None) -> str:
    if time_ms is None:
        return "none"
    return f"{moment(time_ms)} ({relative(time_ms, time.time_ns() // 1_000_000)})"


def _as_json(known: TombstoneStats, took_seconds: float) -> dict[str, Any]:
    return {
        "count": known.count,
        "memory_bytes": known.memory_bytes,
        "oldest": None if known.oldest_ms is None else moment(known.oldest_ms),
        "snapshot": None if known.snapshot_ms is None else moment(known.snapshot_ms),
        "records": known.records,
        "read_ms": round(took_seconds * 1000),
        "paused": list(known.paused),
    }
