"""`rabbitdelay broker`: run a private RabbitMQ on this machine."""

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rabbitdelay.cli.exit_codes import answer_no
from rabbitdelay.cli.output.console import print_json
from rabbitdelay.errors import BrokerProcessError
from rabbitdelay.private_broker import BrokerStatus, PrivateBroker, default_directory, export_line
from rabbitdelay.private_broker.machine import signals

_POLL_SECONDS = 0.5

_directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the broker.  [default: $RABBITDELAY_BROKER_DIR, or in the user's state folder]",
)
_nodes_option = click.option(
    "--nodes",
    type=click.IntRange(1, 9),
    help="Number of nodes in the cluster.  [default: as many as the folder has, or 1]",
)
_port_option = click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="AMQP port of the first node.  [default: its previous port, or a free one]",
)
_docker_option = click.option(
    "--docker",
    is_flag=True,
    help="Run in Docker even if rabbitmq-server is installed.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(short_help="Run a private RabbitMQ on this machine.")
def broker() -> None:
    """Run a private RabbitMQ in its own folder, with management UI, on loopback ports.

    The broker runs the rabbitmq-server installed on this machine, or else Docker. Data and URL stay
    the same across restarts. Other commands find a running private broker without a URL.
    """


@broker.command()
@_directory_option
@_nodes_option
@_port_option
@_docker_option
@_json_option
def run(
    directory: Path | None, nodes: int | None, port: int | None, *, docker: bool, as_json: bool
) -> None:
    """Run the broker in the foreground until Ctrl-C or SIGTERM."""
    private = _private_broker(directory, nodes, port, docker=docker)
    with signals.interrupting():
        if not _start(private):
            _print_running(private, as_json=as_json, note="Already running.")
            return
        try:
            _print_running(private, as_json=as_json, note="Press Ctrl-C to stop.")
            _wait_while_running(private)
        except KeyboardInterrupt:
            click.echo("Stopping.", err=True)
        finally:
            with signals.ignored():
                private.stop()


@broker.command()
@_directory_option
@_nodes_option
@_port_option
@_docker_option
@_json_option
def start(
    directory: Path | None, nodes: int | None, port: int | None, *, docker: bool, as_json: bool
) -> None:
    """Start the broker in the background."""
    private = _private_broker(directory, nodes, port, docker=docker)
    with signals.interrupting():
        started = _start(private)
    note = f"To stop the broker: {_stop_command(directory)}"
    _print_running(private, as_json=as_json, note=note if started else f"Already running. {note}")


@broker.command()
@_directory_option
@_json_option
def stop(directory: Path | None, *, as_json: bool) -> None:
    """Stop the broker and keep its data."""
    private = _private_broker(directory)
    with _progress() as report:
        stopped = private.stop(report)
    if as_json:
        print_json({"stopped": stopped, "directory": str(private.directory)})
    else:
        click.echo("Stopped." if stopped else f"No broker is running in {private.directory}.")


@broker.command()
@_directory_option
@_json_option
def status(directory: Path | None, *, as_json: bool) -> None:
    """Show the broker's state and addresses. Exits with 3 if it is not running."""
    private = _private_broker(directory)
    now = private.status()
    if now.running:
        _print_running(
            private, as_json=as_json, note=f"To stop the broker: {_stop_command(directory)}"
        )
        return
    print_json(_as_json(now)) if as_json else click.echo(
        f"No broker is running in {now.directory}."
    )
    answer_no()


def _private_broker(
    directory: Path | None,
    nodes: int | None = None,
    port: int | None = None,
    *,
    docker: bool = False,
) -> PrivateBroker:
    return PrivateBroker(directory or default_directory(), nodes=nodes, port=port, docker=docker)


def _start(private: PrivateBroker) -> bool:
    with _progress() as report:
        return private.start(report)


def _stop_command(directory: Path | None) -> str:
    option = f" --dir {shlex.quote(str(directory))}" if directory else ""
    return f"rabbitdelay broker stop{option}"


def _wait_while_running(private: PrivateBroker) -> None:
    while private.status().running:
        time.sleep(_POLL_SECONDS)
    raise BrokerProcessError(
        f"The broker in {private.directory} ended unexpectedly: see the logs there."
    )


def _print_running(private: PrivateBroker, *, as_json: bool, note: str) -> None:
    now = private.status()
    if as_json:
        print_json(_as_json(now))
        return
    for node in now.nodes:
        click.echo(f"{node.name}{'' if node.running else ' (down)'}")
        click.echo(f"  AMQP           {node.url}")
        click.echo(f"  management UI  {node.management_url}  (guest, guest)")
        click.echo(f"  process        {node.pid or 'none'}")
    click.echo(f"Folder: {now.directory}")
    if now.directory != default_directory():
        click.echo(f"To use this broker in other commands: {export_line(now.directory)}")
    click.echo(note)


def _as_json(now: BrokerStatus) -> dict[str, Any]:
    running = [node for node in now.nodes if node.running]
    return {
        "running": now.running,
        "directory": str(now.directory),
        "url": running[0].url if running else None,
        "management_url": running[0].management_url if running else None,
        "nodes": [asdict(node) for node in now.nodes],
    }


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Report progress on stderr: a spinner on a terminal, one line per step elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: click.echo(step, err=True)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("")
        yield lambda step: progress.update(task, description=step)
