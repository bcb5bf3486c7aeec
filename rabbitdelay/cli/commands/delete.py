"""`rabbitdelay delete`: delete jobs by id, or as printed by `put --json`."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO

import click

from rabbitdelay.cli.context import Settings, pass_settings
from rabbitdelay.cli.input.printed_jobs import read_jobs
from rabbitdelay.cli.options import json_option, read_id
from rabbitdelay.cli.output.console import print_json
from rabbitdelay.cli.output.progress import ReadingProgress, patience, reading
from rabbitdelay.cli.output.text import counted
from rabbitdelay.errors import DeleteManyFailed
from rabbitdelay.models import Job

_AGAIN = "the outcome of a few more is unknown: repeat the delete, which is idempotent"


@click.command(short_help="Delete jobs by id, or as printed by put --json.")
@click.argument("ids", metavar="[ID]...", type=read_id, nargs=-1)
@click.option(
    "--from",
    "file",
    metavar="FILE",
    type=click.File("rb"),
    help="File of ids, one per line, or of jobs as printed by put --json; - for stdin.",
)
@json_option
@pass_settings
def delete(
    settings: Settings, ids: tuple[str, ...], file: BinaryIO | None, *, as_json: bool
) -> None:
    """Delete jobs by ID and return once the delete is durable. No consumer needs to run.

    Jobs put with an ID until now are not delivered, including delayed jobs and retries. Jobs put
    later are not affected. A job as printed by put --json is deleted on its own, independent of
    clocks. Deleting a job that does not exist is not an error, so matches are not counted.

    \b
    rabbitdelay delete orderclose-42
    rabbitdelay put mail hello --delay 1h --json > job.json
    rabbitdelay delete --from job.json
    """  # noqa: D301 - click needs the character itself, to keep lines as they are
    if bool(ids) == (file is not None):
        raise click.UsageError("give either IDs or --from")
    deleted = _delete_ids(settings, ids) if file is None else _delete_file(settings, file)
    if as_json:
        print_json({"recorded": deleted, "deleted": deleted})
    else:
        click.echo(f"{counted(deleted, 'id')} recorded as deleted")


def _delete_ids(settings: Settings, ids: tuple[str, ...]) -> int:
    with patience("waiting for the broker's confirm"), settings.client() as client:
        try:
            return client.delete_many(ids)
        except KeyboardInterrupt:
            text = f"{counted(len(ids), 'job')} may be deleted or not"
            raise KeyboardInterrupt(text) from None
        except DeleteManyFailed as failure:
            raise _explained(failure) from failure.__cause__


def _delete_file(settings: Settings, file: BinaryIO) -> int:
    with reading(file, "deleted") as progress, settings.client() as client:
        try:
            return client.delete_many(_jobs_to_delete(file, progress), on_deleted=progress.reached)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{progress.count:,} deleted; {_AGAIN}") from None
        except DeleteManyFailed as failure:
            raise _explained(failure) from failure.__cause__


def _jobs_to_delete(lines: Iterable[bytes], progress: ReadingProgress) -> Iterator[str | Job]:
    for _, read in read_jobs(lines, progress.read):
        yield read if isinstance(read, str) else read.to_delete()


def _explained(failure: DeleteManyFailed) -> DeleteManyFailed:
    text = f"{failure.__cause__}; {failure.deleted:,} deleted; {_AGAIN}"
    return DeleteManyFailed(text, deleted=failure.deleted)
