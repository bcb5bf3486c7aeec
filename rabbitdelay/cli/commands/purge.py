"""`rabbitdelay purge`: every job of a topic, deleted."""

import click

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.options import json_option, read_topic
from rabbitdelay.cli.output import agree, counted, patience, print_json
from rabbitdelay.core.topology.counts import TopicCounts


@click.command(short_help="Delete every job of a topic.")
@click.argument("topic", type=read_topic)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_settings
def purge(settings: Settings, topic: str, *, yes: bool, as_json: bool) -> None:
    """Delete every job that was put in TOPIC until now: delayed, ready and buried.

    What is ready or buried is gone at once. What is delayed is dropped when it is due, and what
    is reserved is not tried again. Exits with 3 when nobody agreed, or there is no such topic.
    """
    with settings.client() as client:
        counts = client.count(topic)
    if counts is None:
        click.echo(f"no such topic: {topic}", err=True)
        answer_no()
    if not (yes or agree(_question(counts), "purge")):
        click.echo("nothing was purged", err=True)
        answer_no()
    waiting = "waiting for the broker's confirm"
    with patience(waiting), settings.beginning_now().client() as client:
        try:
            gone = client.purge(topic)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"topic {topic} may be purged or not") from None
    if as_json:
        print_json({"topic": topic, "recorded": True, "gone": gone})
    else:
        now = f"{counted(gone, 'ready or buried job')} removed now"
        click.echo(f"purge of {topic} recorded: {now}, delayed jobs are dropped when they are due")


def _question(counts: TopicCounts) -> str:
    ready, buried = counts.ready or 0, counts.buried or 0
    return f"Purge {counts.topic}: {ready:,} ready, {buried:,} buried, all delayed, for good?"
