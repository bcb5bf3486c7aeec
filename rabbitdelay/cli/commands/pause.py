"""`rabbitdelay pause` and `rabbitdelay resume`: pause topics and resume them."""

from collections.abc import Callable

import click

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.options import json_option, read_topic
from rabbitdelay.cli.output.console import print_json
from rabbitdelay.cli.output.progress import patience
from rabbitdelay.sync.client import Client

_topics_argument = click.argument(
    "topics", metavar="TOPIC...", type=read_topic, nargs=-1, required=True
)


@click.command(short_help="Pause topics.")
@_topics_argument
@json_option
@pass_settings
def pause(settings: Settings, topics: tuple[str, ...], *, as_json: bool) -> None:
    """Pause TOPICs: no consumer receives their jobs until they are resumed.

    This includes consumers that start later. Reserved jobs are not affected. Jobs that are put or
    become due meanwhile wait.
    """
    _switch(settings, topics, Client.pause)
    print_json({"paused": topics}) if as_json else click.echo(f"paused {', '.join(topics)}")


@click.command(short_help="Resume paused topics.")
@_topics_argument
@json_option
@pass_settings
def resume(settings: Settings, topics: tuple[str, ...], *, as_json: bool) -> None:
    """Resume TOPICs: consumers receive their jobs again.

    Resuming a topic that is not paused is not an error.
    """
    _switch(settings, topics, Client.resume)
    print_json({"resumed": topics}) if as_json else click.echo(f"resumed {', '.join(topics)}")


def _switch(
    settings: Settings, topics: tuple[str, ...], switch: Callable[[Client, str], None]
) -> None:
    done: list[str] = []
    with patience("waiting for the broker's confirm"), settings.client() as client:
        try:
            for topic in topics:
                switch(client, topic)
                done.append(topic)
        except KeyboardInterrupt:
            text = f"done: {', '.join(done) or 'none'}; the next topic may or may not be"
            raise KeyboardInterrupt(text) from None
        # Pausing a mistyped name succeeds too, and would otherwise go unnoticed.
        unknown = [topic for topic in topics if client.count(topic) is None]
    if unknown:
        click.echo(f"note: nothing was ever put to {', '.join(unknown)}", err=True)
