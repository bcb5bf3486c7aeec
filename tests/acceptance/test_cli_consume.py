"""`rabbitdelay consume` and `pop`: their output, exit codes and effects on jobs."""

import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pika
import pytest

from rabbitdelay import Client
from tests.acceptance.conftest import CommandLine
from tests.support.patience import patience, wait_until
from tests.support.programs.background import background

Put = Callable[..., None]
Reasons = Callable[[], dict[str, str]]

HANDLERS = """
import asyncio, os, pathlib, threading
from pydantic import BaseModel
from rabbitdelay import Job

class Order(BaseModel):
    order: int

def close(order: Order, job: Job):
    os.write(1, f"closed {order.order} in attempt {job.attempt}\\n".encode())

async def aclose(order: Order):
    await asyncio.sleep(0.01)
    print(f"closed {order.order} on {threading.current_thread().name}", flush=True)

def fail(order: Order):
    raise ValueError("no such order")

def echo(body: dict):
    return body

async def aecho(body: dict):
    return body

def slow(order: Order):
    import time
    print("begun", flush=True)
    time.sleep(order.order)
    print("done", flush=True)
"""


@pytest.fixture
def client(broker_url: str, namespace: str) -> Iterator[Client]:
    with Client(broker_url, namespace=namespace, stabilise_seconds=0) as client:
        yield client


@pytest.fixture
def reasons(broker_url: str, namespace: str) -> Reasons:
    """Return the reason of each buried job of topic t, by id."""

    def look() -> dict[str, str]:
        with Client(broker_url, namespace=namespace, declare=False) as client:
            return {one.id or "": one.reason for one in client.buried("t").list()}

    return look


@pytest.fixture
def run(program: list[str], options: list[str], tmp_path: Path) -> Callable[..., Any]:
    """Run the command line to its end, in a folder with handlers."""
    (tmp_path / "handlers.py").write_text(HANDLERS)

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*program, *options, *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=patience(60),
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture
def answers(broker_url: str, namespace: str) -> Iterator[str]:
    """A queue of another program on the shared broker."""
    name = f"answers.{namespace}"
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        yield name
        channel.queue_delete(name)


def _bodies(url: str, queue: str) -> list[Any]:
    """Take all messages out of a queue, and return their bodies."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        taken = iter(lambda: channel.basic_get(queue, auto_ack=True)[2], None)
        return [json.loads(body) for body in taken]


@contextmanager
def started(
    program: list[str], options: list[str], folder: Path, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """Run the command line in the background, in a folder with handlers."""
    (folder / "handlers.py").write_text(HANDLERS)
    with subprocess.Popen(
        [*program, *options, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def log(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stderr.splitlines()]


# --handler


def test_a_function_handles_jobs(client: Client, run: Callable[..., Any]) -> None:
    for n in range(3):
        client.put("t", {"order": n})
    done = run("consume", "t", "--handler", "handlers:close", "--until-empty")
    assert sorted(done.stdout.splitlines()) == [f"closed {n} in attempt 1" for n in range(3)]
    assert client.pop("t") is None


def test_a_coroutine_function_handles_jobs_on_the_main_thread(
    client: Client, run: Callable[..., Any]
) -> None:
    client.put("t", {"order": 5})
    done = run("consume", "t", "--handler", "handlers:aclose", "--max-jobs", "1")
    assert done.stdout == "closed 5 on MainThread\n", "the asyncio front end runs it"


def test_a_function_handles_jobs_in_processes(client: Client, run: Callable[..., Any]) -> None:
    client.put("t", {"order": 6})
    done = run(
        *("consume", "t", "--handler", "handlers:close", "--max-jobs", "1"),
        *("--pool", "process", "--concurrency", "1"),
    )
    assert done.stdout == "closed 6 in attempt 1\n"


@pytest.mark.parametrize("function", ["echo", "aecho"])
def test_responses_go_only_to_allowed_queues(
    client: Client, run: Callable[..., Any], answers: str, broker_url: str, function: str
) -> None:
    consume = ("consume", "t", "--handler", f"handlers:{function}", "--max-jobs", "1")
    client.put("t", {"order": 1}, reply_to=answers)
    refused = log(run(*consume))
    (told,) = [line for line in refused if line["event"] == "response refused"]
    assert (told["level"], told["topic"]) == ("warning", "t")
    assert f"reply_to '{answers}' is not an allowed queue" in told["reason"]
    assert refused[-1]["refused_replies"] == 1
    client.put("t", {"order": 2}, reply_to=answers)
    allowed = log(run(*consume, "--allow-reply-to", "other", "--allow-reply-to", "answers.*"))
    assert allowed[-1]["refused_replies"] == 0
    assert _bodies(broker_url, answers) == [{"order": 2}]


def test_several_topics_are_consumed(client: Client, run: Callable[..., Any]) -> None:
    for topic in ("a", "b", "c"):
        client.put(topic, {"order": 1})
    done = run("consume", "a", "b", "c", "--handler", "handlers:close", "--until-empty")
    assert len(done.stdout.splitlines()) == 3


def test_a_failed_job_is_logged_as_json_and_buried(
    client: Client, run: Callable[..., Any], reasons: Reasons
) -> None:
    job = client.put("t", {"order": 1})
    other = client.put("t", {"other": 1})
    options = ("--max-attempts", "2", "--backoff", "0s", "--max-jobs", "3")
    done = run("consume", "t", "--handler", "handlers:fail", *options)
    failed = [line for line in log(done) if line.get("job_id") == job.id]
    assert [(line["level"], line["attempt"]) for line in failed] == [("warning", 1), ("error", 2)]
    assert failed[0]["error"] == "no such order"
    assert failed[0]["topic"] == "t"
    assert failed[0]["lateness_ms"] >= 0
    assert reasons() == {job.id: "attempt 2 of 2 failed", other.id: "body: order: Field required"}


def test_verbose_logs_every_job(client: Client, run: Callable[..., Any]) -> None:
    job = client.put("t", {"order": 1})
    arguments = ("consume", "t", "--handler", "handlers:close", "--max-jobs", "1")
    (finished,) = [line for line in log(run("-v", *arguments)) if "job_id" in line]
    assert (finished["event"], finished["job_id"]) == ("finished", job.id)
    client.put("t", {"order": 1})
    lines = log(run(*arguments))
    assert not [line for line in lines if "job_id" in line]
    totals = lines[-1]
    assert (totals["event"], totals["finished"], totals["buried"]) == ("totals", 1, 0)


# --exec


def test_a_command_gets_the_body_and_the_job(client: Client, run: Callable[..., Any]) -> None:
    job = client.put("t", {"order": 7}, ttr=5)
    command = 'cat; echo " $RABBITDELAY_JOB_ID $RABBITDELAY_JOB_TOPIC $RABBITDELAY_JOB_ATTEMPT"'
    done = run("consume", "t", "--exec", command, "--max-jobs", "1")
    assert done.stdout == f'{{"order":7}} {job.id} t 1\n'


def test_the_exit_code_of_a_command_decides_the_fate_of_its_job(
    client: Client, run: Callable[..., Any], reasons: Reasons
) -> None:
    buried, retried = client.put("t", "100"), client.put("t", "7")
    run(
        *("consume", "t", "--exec", 'read code; echo oh no >&2; exit "$code"'),
        *("--max-jobs", "3", "--max-attempts", "2", "--backoff", "0s"),
    )
    found = reasons()
    assert found.keys() == {buried.id, retried.id}
    assert "oh no" in found[buried.id]
    assert found[retried.id] == "attempt 2 of 2 failed"


def test_a_failed_command_is_retried_on_schedule_and_logged_as_a_failure(
    client: Client, run: Callable[..., Any]
) -> None:
    job = client.put("t")
    options = ("--backoff", "0s,100ms", "--max-attempts", "3", "--max-jobs", "3")
    lines = log(run("consume", "t", "--exec", "exit 1", *options))
    failed = [line for line in lines if line.get("job_id") == job.id]
    assert [(line["level"], line.get("retry_in_ms")) for line in failed] == [
        *(("warning", 0), ("warning", 100)),
        ("error", None),
    ]


def test_the_process_group_of_a_command_is_killed_at_the_ttr(
    client: Client, run: Callable[..., Any], tmp_path: Path
) -> None:
    client.put("t", ttr=1)
    command = f"(sleep 30; touch {tmp_path}/late) & echo $! > {tmp_path}/child; wait"
    run("consume", "t", "--exec", command, "--max-jobs", "1")
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not Path(f"/proc/{child}").exists(), what="the command's child is dead")


# --webhook


class Hook(BaseHTTPRequestHandler):
    """Answers with the status given by the path."""

    seen: list[tuple[str, bytes, str | None]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, body, self.headers["Rabbitdelay-Id"]))
        self.send_response(int(self.path.strip("/")))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Suppress the log."""


@pytest.fixture
def hook() -> Iterator[tuple[str, list[tuple[str, bytes, str | None]]]]:
    seen: list[tuple[str, bytes, str | None]] = []
    handler = type("OwnHook", (Hook,), {"seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


def test_a_webhook_receives_jobs_and_may_bury_them(
    client: Client, run: Callable[..., Any], hook: tuple[str, list[Any]], reasons: Reasons
) -> None:
    url, seen = hook
    job = client.put("t", {"order": 8})
    run("consume", "t", "--webhook", f"{url}/204", "--max-jobs", "1")
    assert seen == [("/204", b'{"order":8}', job.id)]
    gone = client.put("t")
    run("consume", "t", "--webhook", f"{url}/410", "--max-jobs", "1")
    assert "410" in reasons()[gone.id]


def test_a_callback_is_called_only_if_its_host_is_allowed(
    client: Client, run: Callable[..., Any], hook: tuple[str, list[Any]], reasons: Reasons
) -> None:
    """A private address needs --allow-private as well."""
    url, seen = hook
    refused = client.put("t", callback=f"{url}/200")
    run("consume", "t", "--webhook", "--allow-host", "example.com", "--max-jobs", "1")
    private = client.put("t", callback=f"{url}/200")
    allow = ("--allow-host", url.removeprefix("http://"))
    run("consume", "t", "--webhook", *allow, "--max-jobs", "1")
    found = reasons()
    assert "--allow-host" in found[refused.id]
    assert "--allow-private" in found[private.id]
    assert not seen
    client.put("t", callback=f"{url}/200")
    run("consume", "t", "--webhook", *allow, "--allow-private", "--max-jobs", "1")
    assert [path for path, _, _ in seen] == ["/200"]


# --print


def test_print_writes_lines_of_json(client: Client, run: Callable[..., Any]) -> None:
    jobs = [client.put("t", {"order": n}) for n in range(3)]
    done = run("consume", "t", "--print", "--until-empty")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["id"], line["body"]) for line in lines] == [
        (job.id, {"order": n}) for n, job in enumerate(jobs)
    ]


# Stopping


def test_sigterm_lets_a_running_job_finish(
    client: Client, program: list[str], options: list[str], tmp_path: Path
) -> None:
    arguments = ("consume", "t", "--handler", "handlers:slow")
    with started(program, options, tmp_path, *arguments) as process:
        client.put("t", {"order": 1})
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "done\n"
        assert process.wait(patience(20)) == 0
    assert client.pop("t") is None


def test_a_second_ctrl_c_gives_the_job_back_at_once(
    client: Client, program: list[str], options: list[str], tmp_path: Path
) -> None:
    arguments = ("consume", "t", "--handler", "handlers:slow")
    with started(program, options, tmp_path, *arguments) as process:
        client.put("t", {"order": 60})
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert any("stopping" in line for line in process.stderr), "the job may still finish"
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(patience(20)) == 130
    job = client.pop("t", wait=patience(10))
    assert job is not None
    assert job.attempt == 1
    job.finish()


def test_a_job_that_outlasts_the_grace_period_is_given_back(
    client: Client, program: list[str], options: list[str], tmp_path: Path
) -> None:
    arguments = ("consume", "t", "--handler", "handlers:slow", "--grace", "1s")
    with started(program, options, tmp_path, *arguments) as process:
        client.put("t", {"order": 60})
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        process.wait(patience(20))
    job = client.pop("t", wait=patience(10))
    assert job is not None
    assert job.attempt == 1
    job.finish()


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["t"], "one of --handler, --exec, --webhook or --print"),
        (["t", "--print", "--exec", "true"], "only one of --handler, --exec, --webhook or --print"),
        (["t", "--webhook"], "--allow-host"),
        (["t", "--handler", "nothing"], "package.module:function"),
        (["t", "--handler", "no_such_module:f"], "module no_such_module not found"),
        (["t", "--print", "--allow-private"], "--webhook without a URL"),
        (["t", "--exec", "true", "--pool", "process"], "--pool process requires --handler"),
        (["t", "--print", "--backoff", "5s,soon"], "invalid duration 'soon'"),
        (["a b", "--print"], "may only contain"),
        ([], "Missing argument"),
    ],
)
def test_invalid_arguments_are_refused(
    rabbitdelay: CommandLine, arguments: list[str], message: str
) -> None:
    result = rabbitdelay("consume", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_consume_without_a_broker_exits_with_4(program: list[str]) -> None:
    arguments = ["--url", "amqp://127.0.0.1:1", "consume", "t", "--print"]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "cannot connect" in done.stderr


# Deletes


def test_deleted_jobs_are_not_run(client: Client, run: Callable[..., Any]) -> None:
    jobs = [client.put("t", {"order": number}) for number in range(4)]
    client.delete_many(jobs[:3])
    done = run("consume", "t", "--print", "--until-empty")
    assert [json.loads(line)["body"] for line in done.stdout.splitlines()] == [{"order": 3}]


def test_consume_logs_when_no_job_is_handed_out(
    client: Client, program: list[str], options: list[str], tmp_path: Path, broker_url: str
) -> None:
    """The log of deletes is deleted and created again."""
    arguments = ("consume", "t", "--print")
    with started(program, options, tmp_path, *arguments) as process:
        errors, output = process.stderr, process.stdout
        assert errors is not None
        assert output is not None
        client.put("t", 1)
        assert json.loads(output.readline())["body"] == 1
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            connection.channel().queue_delete(client.topology.tombstones)
        told = map(json.loads, errors)
        why = "log of deletes: cut off, handing out no jobs ("
        cut_off = next(line for line in told if line["event"].startswith(why))
        assert cut_off["level"] == "warning"
        assert client.topology.tombstones in cut_off["event"]
        next(line for line in told if line["event"].startswith("log of deletes: read ("))
        client.put("t", 2)
        assert json.loads(output.readline())["body"] == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(patience(20)) == 0


# On a terminal


def test_a_terminal_shows_the_progress_of_jobs(
    client: Client, program: list[str], options: list[str], tmp_path: Path
) -> None:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    ours, theirs = pty.openpty()
    arguments = ["consume", "t", "--handler", "handlers:fail", "--max-attempts", "1"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm", "COLUMNS": "80"}
    client.delete(client.put("t", {"order": 0}))  # before a worker can take it
    client.put("t", {"order": 1})
    with background(
        subprocess.Popen(
            [*program, *options, *arguments],
            cwd=tmp_path,
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        )
    ) as process:
        os.close(theirs)
        shown = b""
        while any(text not in shown for text in (b"buried 1", b"no such order", b"deleted")):
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        while b"0 finished, 0 released, 1 buried, 1 deleted" not in shown:
            shown += os.read(ours, 4096)
        assert process.wait(patience(20)) == 0
    os.close(ours)


# pop


def test_pop_prints_the_body_and_finishes_the_job(client: Client, rabbitdelay: CommandLine) -> None:
    client.put("t", {"order": 1})
    result = rabbitdelay("pop", "t")
    assert (result.exit_code, result.stdout) == (0, '{"order":1}\n')
    result = rabbitdelay("pop", "t")
    assert (result.exit_code, result.stderr) == (3, "no job received\n")
    client.pause("t")
    result = rabbitdelay("pop", "t")
    assert (result.exit_code, result.stderr) == (3, "no job received (paused: t)\n")


def test_pop_waits_for_a_job_and_prints_json(client: Client, rabbitdelay: CommandLine) -> None:
    job = client.put("t", "hello", delay=1)
    result = rabbitdelay("pop", "t", "--wait", "15", "--json")
    line = json.loads(result.stdout)
    assert (line["id"], line["body"], line["attempt"]) == (job.id, "hello", 1)


def test_pop_returns_several_jobs(client: Client, rabbitdelay: CommandLine) -> None:
    for n in range(3):
        client.put("t", n)
    result = rabbitdelay("pop", "t", "--max", "5", "--wait", "5s")
    assert result.stdout == "0\n1\n2\n"


def test_pop_reports_a_buried_job_only_to_allowed_queues(
    client: Client, run: Callable[..., Any], answers: str, broker_url: str
) -> None:
    pop = ("pop", "t", "--exec", "exit 100")
    client.put("t", reply_to=answers)
    run(*pop, code=1)
    assert _bodies(broker_url, answers) == []
    client.put("t", reply_to=answers)
    run(*pop, "--allow-reply-to", answers, code=1)
    assert _bodies(broker_url, answers) == [None]


def test_pop_hands_its_job_to_a_command(
    client: Client, run: Callable[..., Any], reasons: Reasons
) -> None:
    client.put("t", {"order": 1})
    assert run("pop", "t", "--exec", "cat").stdout == '{"order":1}'
    buried = client.put("t")
    run("pop", "t", "--exec", "echo why >&2; exit 100", code=1)
    assert "why" in reasons()[buried.id]
    client.put("t", max_attempts=3, backoff=0)
    run("pop", "t", "--exec", "exit 3", code=1)
    job = client.pop("t", wait=patience(10))
    assert job is not None
    assert job.attempt == 2
    job.finish()
