"""The command line as a whole: help, exit codes, errors, signals and pipes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rabbitdelay import Client, errors
from rabbitdelay.cli import root
from rabbitdelay.cli.exit_codes import ExitCode, exit_code
from tests.acceptance.conftest import CommandLine
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.patience import patience, wait_until
from tests.support.programs.background import background

pytestmark = pytest.mark.usefixtures("nothing_set")

ROOT = Path(__file__).parents[2]
NO_BROKER = "amqp://someone:s3cret@127.0.0.1:1"


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(root, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_help_lists_every_exit_code() -> None:
    code, text, _ = run("--help")
    assert code == 0
    for number in ExitCode:
        assert f"  {number.value} " in text


def test_help_lists_the_commands() -> None:
    _, text, _ = run("--help")
    for command in root.commands:
        assert f"\n  {command} " in text
    listed = text.partition("\nJobs:\n")[2].partition("\n  Exit codes:")[0]
    assert "..." not in listed, "a line is truncated"


def test_help_fits_into_80_columns() -> None:
    def check(command: click.Command, *path: str) -> None:
        result = CliRunner().invoke(root, [*path, "--help"], terminal_width=80)
        assert result.exit_code == 0
        assert [line for line in result.stdout.splitlines() if len(line) > 80] == [], path
        for name, child in command.commands.items() if isinstance(command, click.Group) else ():
            check(child, *path, name)

    check(root)


def test_a_password_in_the_url_option_is_warned_about() -> None:
    """Every user of the machine can see it with `ps`. The environment is not shown to others."""
    code, _, told = run("--url", NO_BROKER, "explain", "1s")
    assert code == 0
    assert told.count("can see the password in --url with `ps`") == 1
    assert "s3cret" not in told
    for fine in ("amqp://guest:guest@localhost", "amqp://someone@localhost", "amqp://localhost"):
        assert run("--url", fine, "explain", "1s")[2] == ""
    result = CliRunner().invoke(root, ["explain", "1s"], env={"RABBITDELAY_URL": NO_BROKER})
    assert (result.exit_code, result.stderr) == (0, "")


def test_ctrl_c_during_imports_prints_no_traceback(tmp_path: Path) -> None:
    slow = tmp_path / "pika" / "__init__.py"
    slow.parent.mkdir()
    slow.write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    with background(
        subprocess.Popen(
            [sys.executable, "-c", "from rabbitdelay_command import main; main()", "--version"],
            env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=patience(10))
    assert (process.returncode, told) == (-signal.SIGINT, "")


def test_the_command_is_the_module_that_handles_ctrl_c() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"rabbitdelay": "rabbitdelay_command:main"}
    command = [sys.executable, "-c", "from rabbitdelay_command import main; main()", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("rabbitdelay ")


def test_version() -> None:
    assert run("--version")[1].startswith("rabbitdelay ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", "orderclose", "--delay", "soon"),
        ("put", "orderclose", "--at", "2027-01-01T00:00:00"),
        ("put", "orderclose", "--at", "tomorrow"),
        ("put", "no spaces"),
        ("put",),
        ("explain", "10y"),
        ("--namespace", "a.b", "explain", "1s"),
        ("--url", "http://localhost", "put", "orderclose"),
        ("unrouted", "drop"),
        ("nonsense",),
    ],
)
def test_invalid_input_exits_with_2(arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "rror: " in err


def test_the_error_for_a_time_without_a_zone_says_what_to_add() -> None:
    assert "add Z" in run("put", "orderclose", "--at", "2027-01-01T00:00:00")[2]


def test_the_error_for_a_schedule_as_the_backoff_of_a_job_says_where_to_give_it() -> None:
    code, _, told = run("put", "orderclose", "--backoff", "5s,15s")
    assert code == 2
    assert "'5s,15s' is a schedule, and a job takes a single delay" in told
    assert "`consume --backoff`" in told


@pytest.mark.parametrize(
    "command",
    [
        ("put", "orderclose"),
        ("topics", "orderclose"),
        ("topology", "apply"),
        ("topology", "verify"),
        ("unrouted", "list"),
        ("unrouted", "retry"),
        ("unrouted", "drop", "--all"),
        ("delete", "a"),
        ("pause", "orderclose"),
        ("resume", "orderclose"),
        ("purge", "orderclose", "--yes"),
        ("tombstones",),
        ("buried", "list", "orderclose"),
    ],
)
def test_an_unreachable_broker_exits_with_4(command: tuple[str, ...]) -> None:
    """The error comes at once, is one line, and does not contain the password."""
    code, out, err = run("--url", NO_BROKER, "--management-url", "http://127.0.0.1:1", *command)
    assert (code, out) == (4, "")
    assert err.splitlines()[-1].startswith("error: amqp://someone:***@127.0.0.1:1: cannot connect")
    assert "s3cret" not in err


def test_a_refused_login_exits_with_4(broker_url: str) -> None:
    url = broker_url.replace("guest:guest", "guest:s3cret")
    code, _, err = run("--url", url, "topics", "orderclose", "--json")
    assert code == 4
    assert "s3cret" not in err


def test_a_queue_type_that_differs_from_the_namespaces_exits_with_1(
    rabbitdelay: CommandLine, broker_url: str, namespace: str
) -> None:
    assert rabbitdelay("topology", "apply").exit_code == 0
    options = ["--url", broker_url, "--namespace", namespace, "--queue-type", "classic"]
    code, _, err = run(*options, "put", "orderclose")
    assert code == 1
    assert "PRECONDITION_FAILED" in err


def test_an_unconfirmed_put_exits_with_5() -> None:
    unknown = errors.OutcomeUnknown("not confirmed", sent=True)
    many = errors.PutManyFailed("some", confirmed=1, unconfirmed=[1], taken=2)
    many.__cause__ = unknown
    assert exit_code(unknown) == exit_code(many) == 5


def test_verbose_logs_connection_attempts() -> None:
    quiet = run("--url", NO_BROKER, "put", "orderclose")[2]
    verbose = run("--verbose", "--url", NO_BROKER, "put", "orderclose")[2]
    assert "next attempt" not in quiet
    assert "next attempt" in verbose


def test_an_interrupt_exits_with_130_and_without_a_traceback(
    rabbitdelay: CommandLine, options: list[str], program: list[str]
) -> None:
    """The confirm arrives at about the time when the job is ready, or later on a busy machine."""
    for ready, seconds in enumerate((0.2, patience(1), patience(5)), start=1):
        code, err = interrupt_put(rabbitdelay, [*program, *options], ready, seconds)
        assert code == 130
        assert re.fullmatch(r"interrupted: (0 jobs|1 job) confirmed; a few more may .*\n", err)
        if "1 job" in err:
            break
    assert err == "interrupted: 1 job confirmed; a few more may have arrived\n"


def interrupt_put(
    rabbitdelay: CommandLine, program: list[str], ready: int, seconds: float
) -> tuple[int, str]:
    """Put a job from stdin, and interrupt this many seconds after the topic has `ready` jobs."""
    process = subprocess.Popen(
        [*program, "put", "orderclose", "--file", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write('{"id": "first"}\n')
    process.stdin.flush()
    wait_until(lambda: f'"ready": {ready}' in rabbitdelay("topics", "orderclose", "--json").stdout)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=patience(20))
    return process.returncode, err


@pytest.mark.parametrize(
    ("options_of_put", "told"),
    [(("--id", "a"), "job a may or may not arrive"), ((), "the job may or may not arrive")],
)
def test_an_interrupted_put_says_that_its_job_may_arrive(
    rabbitdelay: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    options_of_put: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.setattr(Client, "put", raise_interrupt)
    result = rabbitdelay("put", "orderclose", *options_of_put)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == f"interrupted: {told}\n"


def raise_interrupt(*_arguments: object, **_options: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("explain", "1h"), ("explain", "1h", "--json"), ("topology", "show")],
)
def test_a_full_disk_exits_with_1_and_one_line(
    program: list[str], arguments: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [*program, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (result.returncode, result.stderr) == (1, "error: [Errno 28] No space left on device\n")


def test_a_folder_that_cannot_be_created_exits_with_1_and_one_line() -> None:
    code, out, err = run("broker", "start", "--dir", "/proc/nothing")
    assert (code, out) == (1, "")
    assert err.startswith("error: [Errno ")
    assert err.count("\n") == 1


def test_characters_that_cannot_be_encoded_are_replaced(program: list[str]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(
        [*program, "explain", "1h"], env=environment, capture_output=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"? 1h ??? ready" in result.stdout


def test_the_management_password_is_not_shown(shared_broker: SharedBroker) -> None:
    management = shared_broker.management.url.replace("http://", "http://guest:s3cret@")
    code, _, err = run("--url", shared_broker.url, "--management-url", management, "namespaces")
    assert code == 4
    assert "s3cret" not in err
    assert "the user or the password is wrong" in err
    assert "set_user_tags" in err


def test_the_error_names_a_vhost_unknown_to_the_management_api(
    shared_broker: SharedBroker,
) -> None:
    options = ["--url", f"{shared_broker.url.rstrip('/')}/nowhere"]
    code, _, err = run(*options, "--management-url", shared_broker.management.url, "namespaces")
    assert code == 4
    assert "there is no vhost nowhere" in err


def test_the_error_for_an_unreachable_management_api_names_possible_causes(broker_url: str) -> None:
    code, _, err = run("--url", broker_url, "--management-url", "http://127.0.0.1:1", "namespaces")
    assert code == 4
    assert "at http://127.0.0.1:1/" in err
    assert "may not be running" in err
    assert "rabbitmq-plugins enable rabbitmq_management" in err


def test_the_environment_selects_the_broker(
    monkeypatch: pytest.MonkeyPatch, shared_broker: SharedBroker, namespace: str
) -> None:
    monkeypatch.setenv("RABBITDELAY_URL", shared_broker.url)
    monkeypatch.setenv("RABBITDELAY_NAMESPACE", namespace)
    monkeypatch.setenv("RABBITDELAY_QUEUE_TYPE", "classic")
    monkeypatch.setenv("RABBITDELAY_STABILISE_SECONDS", "0")
    monkeypatch.setenv("RABBITDELAY_MANAGEMENT_URL", shared_broker.management.url)
    assert run("put", "orderclose")[0] == 0
    topics = json.loads(run("topics", "--json")[1])
    assert [topic["topic"] for topic in topics] == ["orderclose"]


def test_docs_list_every_exit_code() -> None:
    text = Path(__file__).parents[2].joinpath("docs", "command-line.md").read_text()
    for number in ExitCode:
        assert f"| {number.value} |" in text
