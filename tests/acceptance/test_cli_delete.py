"""`rabbitdelay delete`, `reschedule` and `put --replace`: the jobs that run afterwards."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from rabbitdelay import errors
from rabbitdelay.cli.exit_codes import exit_code
from tests.acceptance.conftest import CommandLine
from tests.support.patience import patience, wait_until
from tests.support.programs.background import background

pytestmark = pytest.mark.usefixtures("nothing_set")


def pop_all(rabbitdelay: CommandLine, topic: str = "mail") -> list[str]:
    """Pop and finish all jobs; return their bodies."""
    result = rabbitdelay("pop", topic, "--max", "100")
    return result.stdout.split()


def test_delete_takes_several_ids(rabbitdelay: CommandLine) -> None:
    for name in ("a", "b", "c"):
        rabbitdelay("put", "mail", name, "--id", name)
    result = rabbitdelay("delete", "a", "c", "unknown")
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        "3 ids recorded as deleted\n",
        "",
    )
    assert pop_all(rabbitdelay) == ["b"]


def test_a_deleted_id_may_be_reused(rabbitdelay: CommandLine) -> None:
    rabbitdelay("put", "mail", "old", "--id", "a")
    assert json.loads(rabbitdelay("delete", "a", "--json").stdout) == {"recorded": 1, "deleted": 1}
    rabbitdelay("put", "mail", "new", "--id", "a")
    assert pop_all(rabbitdelay) == ["new"]


def test_delete_reads_ids_and_jobs_from_a_file(rabbitdelay: CommandLine, tmp_path: Path) -> None:
    """A printed job deletes only that job. It may be on one line or formatted as it was printed."""
    jobs = [rabbitdelay("put", "mail", f"j{n}", "--id", "same", "--json").stdout for n in range(3)]
    rabbitdelay("put", "mail", "by-id", "--id", "{x")
    file = tmp_path / "deletes"
    file.write_text(f"{jobs[0]}\r\n\n{json.dumps(json.loads(jobs[2]))}\nnobody knows me\n")
    result = rabbitdelay("delete", "--from", str(file))
    assert (result.exit_code, result.stdout) == (0, "3 ids recorded as deleted\n")
    assert pop_all(rabbitdelay) == ["j1", "by-id"]


def test_a_job_without_a_token_is_deleted_by_its_id(rabbitdelay: CommandLine) -> None:
    for body in ("1", "2"):
        rabbitdelay("put", "mail", body, "--id", "a")
    result = rabbitdelay("delete", "--from", "-", input='{"id": "a", "attempt": 3}\n')
    assert result.stdout == "1 id recorded as deleted\n"
    assert pop_all(rabbitdelay) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "a"', "not JSON"),
        ("{}", "id: Field required"),
        ('{"id": ""}', "id: id must be a non-empty str"),
        ('{"id": "a", "token": "t"}', "a job with a token needs its due time too"),
        ('{"id": "a", "token": "t", "due": "soon"}', "due: "),
        (
            '{"id": "a", "token": "t", "due": "1960-01-01T00:00:00Z"}',
            "put and due times must not be",
        ),
        ('{"id": "\\ud800"}', "id: id '\\ud800' is not valid Unicode"),
        ("x" * 201, "id must be at most 200 bytes"),
        (b"\xff", "not UTF-8"),
    ],
)
@pytest.mark.usefixtures("existing_namespace")
def test_an_invalid_line_is_named(
    rabbitdelay: CommandLine, line: str | bytes, message: str
) -> None:
    wrong = line.encode() if isinstance(line, str) else line
    result = rabbitdelay("delete", "--from", "-", input=b"first\n\n" + wrong)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: line 3: {message}")
    assert "0 deleted" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [(), ("a", "--from", "-"), ("",), ("--from", "/no/such")])
def test_delete_needs_ids_or_a_file(rabbitdelay: CommandLine, arguments: tuple[str, ...]) -> None:
    result = rabbitdelay("delete", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_the_exit_code_of_many_deletes_is_that_of_their_cause() -> None:
    many = errors.DeleteManyFailed("some", deleted=1)
    assert exit_code(many) == 1
    many.__cause__ = errors.OutcomeUnknown("not confirmed", sent=True)
    assert exit_code(many) == 5


@pytest.mark.usefixtures("existing_namespace")
def test_ctrl_c_reports_the_number_of_recorded_deletes(
    options: list[str], program: list[str]
) -> None:
    """Two thousand ids are sent at once; the rest is still unread."""
    with background(
        subprocess.Popen(
            [*program, *options, "delete", "--from", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"".join(b"id-%d\n" % number for number in range(100_000)))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        told = process.stderr.read().decode()
        assert process.wait(patience(20)) == 130
    assert told.startswith("interrupted: ")
    assert "repeat the delete, which is idempotent" in told
    assert "Traceback" not in told


@pytest.mark.usefixtures("existing_namespace")
def test_a_terminal_shows_the_progress_of_deletes(
    options: list[str], program: list[str], tmp_path: Path, rabbitdelay: CommandLine
) -> None:
    file = tmp_path / "ids"
    file.write_text("".join(f"id-{number}\n" for number in range(50_000)))
    ours, theirs = pty.openpty()
    with background(
        subprocess.Popen(
            [*program, *options, "delete", "--from", str(file)],
            env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
            stdout=subprocess.PIPE,
            stderr=theirs,
        )
    ) as process:
        os.close(theirs)
        shown = b""
        while b"50,000 deleted" not in shown:
            shown += os.read(ours, 4096)
        assert process.stdout is not None
        assert process.stdout.read() == b"50,000 ids recorded as deleted\n"
        assert process.wait(patience(20)) == 0
    os.close(ours)
    assert json.loads(rabbitdelay("tombstones", "--json").stdout)["count"] == 50_000


# put --replace


def test_only_the_replacing_job_lives(rabbitdelay: CommandLine) -> None:
    rabbitdelay("put", "mail", "old", "--id", "a")
    result = rabbitdelay("put", "mail", "new", "--id", "a", "--replace")
    assert result.exit_code == 0
    assert result.stdout.endswith(", replacing earlier jobs with this id\n")
    assert pop_all(rabbitdelay) == ["new"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mail", "x", "--replace"), "--replace requires --id"),
        (("--file", "-", "--replace"), "--replace cannot be combined with --file"),
    ],
)
def test_an_invalid_replace_exits_with_2(
    rabbitdelay: CommandLine, arguments: tuple[str, ...], message: str
) -> None:
    result = rabbitdelay("put", *arguments, input="{}")
    assert result.exit_code == 2
    assert message in result.stderr


# reschedule


def test_a_rescheduled_job_is_due_at_its_new_time(rabbitdelay: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(rabbitdelay("put", "mail", "x", "--delay", "1s", "--id", "a", "--json").stdout)
    result = rabbitdelay("reschedule", str(file), "--delay", "1h")
    assert result.exit_code == 0
    assert result.stdout.startswith("a of mail is due ")
    assert result.stdout.endswith(" (in 1h)\n")
    wait_until(lambda: _ready(rabbitdelay) == 1, what="the old job is ready")
    assert pop_all(rabbitdelay) == []


def test_the_output_of_reschedule_can_be_rescheduled_again(rabbitdelay: CommandLine) -> None:
    options = (
        *("--ttr", "2m", "--max-attempts", "3", "--callback", "https://example.org/"),
        *("--backoff", "2s", "--backoff-max", "1m", "--reply-to", "answers"),
    )
    put = rabbitdelay("put", "mail", "-", "--delay", "1h", *options, "--json", input=b"\xff\x00")
    again = rabbitdelay("reschedule", "-", "--delay", "2h", "--json", input=put.stdout)
    last = rabbitdelay("reschedule", "-", "--delay", "0", "--json", input=again.stdout)
    before, after = json.loads(put.stdout), json.loads(last.stdout)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"token", "put", "due"}
    assert (after["ttr"], after["body_base64"]) == ("2m", "/wA=")
    assert rabbitdelay("pop", "mail").stdout_bytes == b"\xff\x00\n"


def test_several_jobs_are_rescheduled(rabbitdelay: CommandLine) -> None:
    printed = [
        rabbitdelay("put", "mail", name, "--delay", "1h", "--json").stdout for name in ("a", "b")
    ]
    result = rabbitdelay("reschedule", "-", "--delay", "0", input="".join(printed))
    assert len(result.stdout.splitlines()) == 2
    assert sorted(pop_all(rabbitdelay)) == ["a", "b"]


def test_a_job_is_rescheduled_to_a_time(rabbitdelay: CommandLine) -> None:
    put = rabbitdelay("put", "mail", "x", "--json").stdout
    result = rabbitdelay("reschedule", "-", "--at", "2027-01-01T00:00:00Z", "--json", input=put)
    assert json.loads(result.stdout)["due"] == "2027-01-01T00:00:00.000Z"
    assert pop_all(rabbitdelay) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("an-id", "'an-id' is not a job as printed by `rabbitdelay put --json`"),
        ('{"id": "a", "topic": "mail"}', "has no token"),
        (
            '{"id": "a", "topic": "mail", "token": "t", "due": "2027-01-01T00:00:00Z"}',
            "has no body_text",
        ),
        ('{"id": "a", "topic": "no spaces"}', "topic: "),
        ('{"id": "a", "body_base64": "?"}', "body_base64: "),
        ('{"id": "a", "body_base64": 7}', "body_base64: "),
        ('{"id": "a", "body_text": "\\ud800"}', "body_text: "),
    ],
)
@pytest.mark.usefixtures("existing_namespace")
def test_an_input_that_cannot_be_rescheduled_exits_with_2(
    rabbitdelay: CommandLine, line: str, message: str
) -> None:
    result = rabbitdelay("reschedule", "-", "--delay", "1h", input=line)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: line 1: {message}")


@pytest.mark.parametrize("arguments", [(), ("--delay", "1", "--at", "2027-01-01T00:00:00Z")])
def test_reschedule_needs_a_delay_or_a_time(
    rabbitdelay: CommandLine, arguments: tuple[str, ...]
) -> None:
    result = rabbitdelay("reschedule", "-", *arguments, input="")
    assert result.exit_code == 2
    assert "give either --delay or --at" in result.stderr


# The maximum delay


def test_a_delay_above_max_delay_exits_with_2(
    rabbitdelay: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RABBITDELAY_MAX_DELAY", "1h")
    assert rabbitdelay("put", "mail", "--delay", "1h").exit_code == 0
    result = rabbitdelay("put", "mail", "--delay", "2h")
    assert result.exit_code == 2
    assert "is longer than this namespace's max_delay of 1h" in result.stderr
    assert rabbitdelay("topology", "verify").exit_code == 0
    longer = rabbitdelay("--max-delay", "3h", "put", "mail", "--delay", "2h")
    assert longer.exit_code == 1
    assert "created with max_delay 1h" in longer.stderr
    assert rabbitdelay("--max-delay", "3h", "topology", "verify").exit_code == 3


@pytest.mark.parametrize("value", ["soon", "20y"])
def test_an_invalid_max_delay_exits_with_2(rabbitdelay: CommandLine, value: str) -> None:
    for command in (("put", "mail"), ("topology", "show")):
        result = rabbitdelay("--max-delay", value, *command)
        assert (result.exit_code, result.stdout) == (2, "")


def _ready(rabbitdelay: CommandLine) -> int:
    return int(json.loads(rabbitdelay("topics", "mail", "--json").stdout)[0]["ready"])
