"""`rabbitdelay pause` and `rabbitdelay resume`: whether the jobs of topics are handed out."""

from collections.abc import Callable

import click

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.options import json_option, read_topic
from rabbitdelay.cli.output import patience, print_json
from rabbitdelay.sync.client import Client

_topics_argument = click.argument(
    "topics", metavar="TOPIC...", type=read_topic, nargs=-1, required=True
)


@click.command(short_help="Let no job of topics be handed out.")
@_topics_argument
@json_option
@pass_settings
def pause(settings: Settings, topics: tuple[str, ...], *, as_json: bool) -> None:
    """Let no job of TOPICs be handed out, anywhere, until they are resumed.

    It holds for consumers that start later too. What is reserved goes on; what is put or comes
    due meanwhile waits.
    """
    _switch(settings, topics, Client.pause)
    print_json({"paused": topics}) if as_json else click.echo(f"paused {', '.join(topics)}")


@click.command(short_help="Let the jobs of topics be handed out again.")
@_topics_argument
@json_option
@pass_settings
def resume(settings: Settings, topics: tuple[str, ...], *, as_json: bool) -> None:
    """Let the jobs of TOPICs be handed out again. It is no error when they are."""
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
            text = f"done: {', '.join(done) or 'none'}; the next one may be or not"
            raise KeyboardInterrupt(text) from None
        # A name that was mistyped is paused as well, without any effect that would be noticed.
        unknown = [topic for topic in topics if client.count(topic) is None]
    if unknown:
        click.echo(f"note: nothing was ever put to {', '.join(unknown)}", err=True)
