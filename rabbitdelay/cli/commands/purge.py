"""`rabbitdelay purge`: delete all jobs of a topic."""

import click

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.input.questions import agree
from rabbitdelay.cli.options import json_option, read_topic
from rabbitdelay.cli.output.console import print_json
from rabbitdelay.cli.output.progress import patience
from rabbitdelay.cli.output.text import counted
from rabbitdelay.core.administration.counts import TopicCounts


@click.command(short_help="Delete all jobs of a topic.")
@click.argument("topic", type=read_topic)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@pass_settings
def purge(settings: Settings, topic: str, *, yes: bool, as_json: bool) -> None:
    """Delete all jobs put to TOPIC so far, whether delayed, ready or buried.

    Ready and buried jobs are removed at once. Delayed jobs are dropped when they are due, and
    reserved jobs are not retried. Exits with 3 if the answer is no or the topic does not exist.
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
            raise KeyboardInterrupt(f"topic {topic} may or may not have been purged") from None
    if as_json:
        print_json({"topic": topic, "recorded": True, "gone": gone})
    else:
        now = f"{counted(gone, 'ready or buried job')} removed now"
        click.echo(f"purge of {topic} recorded: {now}, delayed jobs are dropped when they are due")


def _question(counts: TopicCounts) -> str:
    ready, buried = counts.ready or 0, counts.buried or 0
    return f"Purge {counts.topic}: {ready:,} ready, {buried:,} buried, all delayed, for good?"
