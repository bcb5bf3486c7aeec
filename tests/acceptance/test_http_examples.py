"""examples/http: programs in other languages, against `rabbitdelay serve`.

One gateway serves all tests. It reaches the broker through a proxy, which can take the broker away,
and the programs reach it through a relay, which can hold requests and lose answers.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rabbitdelay import Client
from rabbitdelay.gateway.access import rights, token_file, tokens
from rabbitdelay.gateway.problems import RETRY_AFTER_SECONDS
from tests.support.brokers.proxy import Proxy
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.patience import patience, wait_until
from tests.support.programs.gateway_process import serving
from tests.support.programs.http_relay import HttpRelay
from tests.support.programs.nodejs import find_node

EXAMPLES = Path(__file__).parents[2] / "examples" / "http"
LANGUAGES = ("php", "node", "java", "shell")
BODY = '{"order": 42}'
TOKEN = tokens.new_token()
WAIT_SECONDS = "0.5"
JAVAC = ("-m", "jdk.compiler/com.sun.tools.javac.Main")  # in the runtime environment as well

ProgramOf = Callable[[str], "Program"]


class Program:
    """The program of one language, with its settings."""

    def __init__(self, command: list[str], environment: dict[str, str], to_end: ExitStack) -> None:
        self._command, self._environment = command, environment
        self._to_end = to_end

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start the program. It is killed at the end of the test if it still runs."""
        process = self._to_end.enter_context(
            subprocess.Popen(
                [*self._command, *arguments],
                cwd=EXAMPLES,
                env=os.environ | self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        self._to_end.callback(process.kill)
        return process

    def run(self, *arguments: str) -> tuple[list[str], str]:
        """Run the program, which must succeed; return the lines of its output, and its errors."""
        code, output, errors = ended(self.start(*arguments))
        assert code == 0, errors
        return output.splitlines(), errors


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Wait for the end of a program; return its exit code, output and errors."""
    output, errors = process.communicate(timeout=patience(30))
    return process.returncode, output, errors


# Fixtures, of which the most expensive ones are made once


@pytest.fixture(scope="module")
def namespace(shared_broker: SharedBroker) -> Iterator[str]:
    """The namespace of the gateway. Each test has a topic of its own in it."""
    name = f"t{secrets.token_hex(4)}"
    yield name
    shared_broker.management.delete_namespace(name)


@pytest.fixture(scope="module")
def proxy(broker_url: str) -> Iterator[Proxy]:
    """The way from the gateway to the broker."""
    with Proxy(broker_url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def token_list(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with the token of the programs, for the topics and ids of these tests."""
    grant = rights.Grant(
        rights.read_rights("put,consume"),
        rights.read_topics("orderclose-*"),
        rights.read_ids("orderclose-*"),
    )
    token = tokens.Token("programs", grant, tokens.digest_of(TOKEN.encode()), None)
    path = tmp_path_factory.mktemp("tokens") / "tokens.txt"
    path.write_text(token_file.line_of(token))
    path.chmod(0o600)
    return str(path)


@pytest.fixture(scope="module")
def relay(proxy: Proxy, namespace: str, token_list: str) -> Iterator[HttpRelay]:
    """The way from the programs to the gateway."""
    options = ("--tokens", token_list)
    with serving(proxy.url, namespace, *options) as gateway, HttpRelay(gateway.port) as relay:
        yield relay


@pytest.fixture(scope="module")
def client(broker_url: str, namespace: str) -> Iterator[Client]:
    with Client(broker_url, namespace=namespace, stabilise_seconds=0) as client:
        yield client


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the compiled program. `java Jobs.java` would compile it for each run."""
    found = shutil.which("java")
    if found is None:
        pytest.skip("Java is missing; its 190 MB are not installed for one program")
    folder = str(tmp_path_factory.mktemp("java"))
    subprocess.run([found, *JAVAC, "-d", folder, EXAMPLES / "Jobs.java"], check=True)
    return [found, "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", folder, "Jobs"]


@pytest.fixture
def program_of(relay: HttpRelay, request: pytest.FixtureRequest) -> Iterator[ProgramOf]:
    """Return the program of a language."""
    environment = {
        "RABBITDELAY_GATEWAY": relay.url,
        "RABBITDELAY_TOKEN": TOKEN,
        "RABBITDELAY_WAIT": WAIT_SECONDS,
    }

    def find(language: str) -> Program:
        match language:
            case "php":
                command = [_found("php", "php-cli php-curl"), "jobs.php"]
            case "node":
                command = [find_node(), "jobs.mjs"]
            case "java":
                command = request.getfixturevalue("java")
            case _:
                _found("curl", "curl"), _found("jq", "jq")
                command = ["sh", "jobs.sh"]
        return Program(command, environment, to_end)

    with ExitStack() as to_end:
        yield find


@pytest.fixture
def topic() -> str:
    return f"orderclose-{secrets.token_hex(3)}"


@pytest.fixture(params=LANGUAGES)
def program(request: pytest.FixtureRequest, program_of: ProgramOf) -> Program:
    return program_of(request.param)


def _found(name: str, packages: str) -> str:
    return shutil.which(name) or pytest.fail(
        f"{name} is missing: apt-get install {packages}", pytrace=False
    )


def _ready(client: Client, topic: str) -> int:
    counts = client.count(topic)
    return (counts and counts.ready) or 0


# What each program shows


def test_a_job_is_put_popped_finished_and_deleted(
    program: Program, client: Client, relay: HttpRelay, topic: str
) -> None:
    """The id needs all the quoting there is. Every request has the token."""
    relay.forget()
    job_id = f"{topic}/ä 1+1?"
    program.run("put", topic, "100ms", BODY, job_id)
    output, errors = program.run("work", topic, "1")
    assert output == [f"{job_id}: close order 42 (attempt 1)"]
    assert errors in {"", "no job came\n"}
    assert client.pop(topic, wait=0) is None
    program.run("delete", job_id)
    assert relay.tokens == {f"Bearer {TOKEN}"}


def test_a_job_that_is_deleted_before_it_is_due_never_comes(program: Program, topic: str) -> None:
    program.run("put", topic, "1h", BODY, f"{topic}-later")
    program.run("put", topic, "300ms", BODY, topic)
    program.run("delete", topic)
    program.run("delete", f"{topic}-later")
    program.run("put", topic, "300ms", '{"order": 43}', f"{topic}-last")
    output, _ = program.run("work", topic, "1")
    assert output == [f"{topic}-last: close order 43 (attempt 1)"]


def test_an_answer_without_a_job_is_followed_by_the_next_long_poll(
    program: Program, client: Client, relay: HttpRelay, topic: str
) -> None:
    client.put(topic, {}, id="first of its topic, which exists from then on")
    client.purge(topic)
    relay.forget()
    working = program.start("work", topic, "1")
    wait_until(lambda: relay.count("POST /v1/pop") >= 2, what="a second poll")
    client.put(topic, {"order": 42}, id=topic)
    code, output, errors = ended(working)
    assert (code, output) == (0, f"{topic}: close order 42 (attempt 1)\n")
    assert errors.startswith("no job came\n")


def test_a_lost_lease_is_given_up_and_the_next_attempt_is_finished(
    program: Program, client: Client, relay: HttpRelay, topic: str
) -> None:
    """The finish arrives when the ttr is over and the job is in the queue again."""
    client.put(topic, {"order": 42}, id=topic, ttr=1)
    held = relay.hold("/v1/finish")
    working = program.start("work", topic, "2")
    held.wait_until_it_arrives()
    wait_until(lambda: _ready(client, topic) == 1, what="the job back in its queue")
    relay.forget()
    held.let_go()
    code, output, errors = ended(working)
    assert (code, output.splitlines()) == (
        0,
        [f"{topic}: close order 42 (attempt {attempt})" for attempt in (1, 2)],
    )
    assert f"job {topic}: lease lost\n" in errors
    assert [one for one in relay.requests if one != "POST /v1/pop"] == ["POST /v1/finish"]
    assert client.pop(topic, wait=0) is None


def test_a_put_whose_answer_is_lost_is_repeated_and_puts_one_job(
    program: Program, client: Client, relay: HttpRelay, topic: str
) -> None:
    """A job that was put later, and comes later, shows that no second copy is on its way."""
    relay.forget()
    relay.lose_answer("/v1/jobs/")
    program.run("put", topic, "100ms", BODY, topic)
    assert relay.requests == [f"PUT /v1/jobs/{topic}"] * 2
    client.put(topic, delay=0.1, id="last")
    jobs: list[str] = []
    while not jobs or jobs[-1] != "last":
        job = client.pop(topic, wait=patience(10))
        assert job is not None
        jobs.append(job.id)
        job.finish()
    assert jobs == [topic, "last"]


def test_a_job_whose_handler_fails_is_released(
    program: Program, client: Client, relay: HttpRelay, topic: str
) -> None:
    client.put(topic, {"no": "order"}, id=topic, backoff=0)
    output, errors = program.run("work", topic, "2")
    assert output == []
    assert errors.count("the body has no order") == 2
    assert relay.requests[-1] == "POST /v1/release"


def test_a_refused_request_ends_the_program_with_the_reason(program: Program, topic: str) -> None:
    code, output, errors = ended(program.start("put", topic, "tomorrow", BODY, topic))
    assert code != 0
    assert output == ""
    assert "invalid duration 'tomorrow'" in errors


def test_requests_are_repeated_until_the_broker_is_back(
    program_of: ProgramOf, proxy: Proxy, client: Client, relay: HttpRelay, topic: str
) -> None:
    """One put and one long poll of each program, all of them in one outage.

    They are answered with status 503, and repeated no sooner than its header Retry-After says.
    """
    programs = [program_of(one) for one in LANGUAGES if one != "java" or shutil.which("java")]
    puts = [f"PUT /v1/jobs/{topic}-{number}" for number in range(len(programs))]
    with ExitStack() as stack:
        stack.callback(proxy.restore)
        proxy.silence()
        proxy.cut()
        relay.forget()
        putting = [
            one.start("put", topic, "0s", BODY, f"{topic}-{number}")
            for number, one in enumerate(programs)
        ]
        working = [one.start("work", topic, "1") for one in programs]
        wait_until(
            lambda: all(relay.count(one) >= 2 for one in (*puts, "POST /v1/pop")),
            what=f"repeated requests: {relay.requests}",
        )
    ends = list(map(ended, putting + working))
    assert [code for code, _, _ in ends] == [0] * len(ends), ends
    assert sorted(output for _, output, _ in ends[len(putting) :]) == [
        f"{topic}-{number}: close order 42 (attempt 1)\n" for number in range(len(programs))
    ]
    for put in puts:
        assert (put, 503) in relay.answers
        assert relay.shortest_pause(put) >= RETRY_AFTER_SECONDS
    assert client.pop(topic, wait=0) is None
