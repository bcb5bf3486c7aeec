"""Exit codes for scripts, one per kind of outcome."""

import sys
from contextlib import suppress
from enum import IntEnum
from typing import Any, NoReturn

import click

from rabbitdelay import errors
from rabbitdelay.cli.output.closed_pipe import NoReader, discard_output, raising_no_reader


class ExitCode(IntEnum):
    """Exit code of a command."""

    DONE = 0
    FAILED = 1
    """Any other error: the broker refused, the topology is missing or differs, …"""
    WRONG_INPUT = 2
    """An argument, an option or a line of a file is invalid, and was not acted on."""
    NO = 3
    """Negative result: not running, no such topic, differences found, nothing matched."""
    UNREACHABLE = 4
    """No connection: the broker does not respond, or refused the login, vhost or certificate."""
    UNKNOWN = 5
    """Not confirmed in time: a job may or may not have been put or deleted."""
    INTERRUPTED = 130
    """Ctrl-C."""
    NO_READER = 141
    """The reader of the output has closed its pipe, as in `| head -1`; a shell's SIGPIPE code."""


_CODES: dict[type[Exception], ExitCode] = {
    errors.InvalidJob: ExitCode.WRONG_INPUT,
    errors.InvalidConfiguration: ExitCode.WRONG_INPUT,
    errors.ConnectionFailed: ExitCode.UNREACHABLE,
    errors.OutcomeUnknown: ExitCode.UNKNOWN,
    errors.NamespaceInUse: ExitCode.NO,
}

_OF_MANY = (errors.PutManyFailed, errors.DeleteManyFailed)


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code of an error; a failed batch has the exit code of its cause."""
    if isinstance(error, _OF_MANY) and error.__cause__ is not None:
        return exit_code(error.__cause__)
    matches = (code for kind, code in _CODES.items() if isinstance(error, kind))
    return next(matches, ExitCode.FAILED)


def answer_no() -> NoReturn:
    """End the command with exit code 3, after it has printed the reason."""
    raise click.exceptions.Exit(ExitCode.NO)


class ErrorReportingGroup(click.Group):
    """A group that reports errors as one line on stderr and an exit code, without a traceback."""

    def main(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - passed on
        """Run the command line."""
        try:
            with raising_no_reader():
                return super().main(*arguments, **options)
        except NoReader:
            discard_output()
            sys.exit(ExitCode.NO_READER)
        except OSError as error:
            discard_output()
            with suppress(OSError):  # stderr itself may be full
                click.echo(f"error: {error}", err=True)
            sys.exit(ExitCode.FAILED)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:  # noqa: ANN401
        """Parse the options before the command, of which --help and --version print."""
        with raising_no_reader():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - whatever the command returns
        """Run the command."""
        with raising_no_reader():
            try:
                return super().invoke(ctx)
            except errors.RabbitDelayError as error:
                click.echo(f"error: {error}", err=True)
                ctx.exit(exit_code(error))
            except (KeyboardInterrupt, click.Abort) as interruption:
                click.echo(": ".join(["interrupted", *map(str, interruption.args)]), err=True)
                ctx.exit(ExitCode.INTERRUPTED)
