"""docker-compose.yml and Dockerfile, checked without a Docker engine."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitdelay import address
from rabbitdelay.gateway import GatewaySettings
from rabbitdelay.gateway.access.token_file import read_tokens
from rabbitdelay.gateway.access.tokens import digest_of
from rabbitdelay.gateway.server import DEFAULT_PORT
from rabbitdelay.private_broker.node import docker
from tests.support.programs import command_line

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
RABBITMQ = SERVICES["rabbitmq"]
PUTTER = SERVICES["putter"]
CONSUMER = SERVICES["consumer"]
GATEWAY = SERVICES["gateway"]
PHP = SERVICES["php-consumer"]
OURS = [PUTTER, CONSUMER, GATEWAY]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def _script() -> str:
    """Return the putter's shell script as compose passes it on: `$$` stands for `$`."""
    assert PUTTER["entrypoint"] == ["sh", "-euc"]
    (script,) = PUTTER["command"]
    assert isinstance(script, str)
    return script.replace("$$", "$")


def _commands() -> list[list[str]]:
    """Return the arguments of each put in the script: its function `put` runs the command."""
    lines = [shlex.split(line, comments=True) for line in _script().splitlines()]
    return [words for words in lines if words and words[0] == "put"]


def _instructions(name: str) -> list[str]:
    """Return the text of the Dockerfile after each instruction of this name."""
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)


# The commands


def test_the_script_is_a_shell_script() -> None:
    subprocess.run(["sh", "-nc", _script()], check=True)


def test_every_command_in_the_script_is_found() -> None:
    assert len(re.findall(r"\brabbitdelay\b", _script())) == 1
    assert len(_commands()) == 4


def test_the_putter_goes_on_when_puts_fail_while_the_broker_restarts(tmp_path: Path) -> None:
    """With a command that fails twice for the second job, and a sleep that ends the script."""
    fakes = {
        "rabbitdelay": 'echo "$*" >> puts; test "$(wc -l < puts)" -ne 2 -a "$(wc -l < puts)" -ne 3',
        "sleep": 'test "$(wc -l < puts)" -lt 6 || kill "$PPID"',
    }
    for name, text in fakes.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path}
    subprocess.run(["sh", "-euc", _script()], cwd=tmp_path, env=environment, check=False)
    first, *again, unpaid, last = [
        line.split() for line in (tmp_path / "puts").read_text().splitlines()
    ]
    assert (first[1], unpaid[1], last[1]) == ("orderclose", "unpaid", "report")
    assert [words[1] for words in again] == ["reminder"] * 3
    assert len({words[-1] for words in again}) == 1, "another id"


def test_the_services_share_one_image_and_wait_for_the_broker() -> None:
    assert {service["image"] for service in OURS} == {"rabbitdelay"}
    assert PUTTER["environment"] == CONSUMER["environment"]
    assert PUTTER["environment"].items() <= GATEWAY["environment"].items()
    assert PUTTER["environment"]["RABBITDELAY_CONNECT_TIMEOUT"] == "1m"


def test_the_dependencies_have_a_layer_of_their_own() -> None:
    """Only pyproject.toml is copied before they are installed."""
    before = DOCKERFILE.partition("pip install")[0]
    assert re.findall(r"^COPY (.+)$", before, re.MULTILINE) == ["pyproject.toml /source/"]
    assert "--no-deps /source" in DOCKERFILE
    program = re.search(r'python -c "(.+)" >', DOCKERFILE)
    assert program is not None
    text = program[1].replace("/source/", f"{ROOT}/")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["http"]
    assert done.stdout.splitlines() == [*project["dependencies"], *extra]


@pytest.mark.parametrize("arguments", _commands(), ids=" ".join)
def test_the_command_line_takes_each_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command_line.check(arguments, monkeypatch)


def test_the_consumer_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [one.replace("$$", "$") for one in CONSUMER["command"]]
    command_line.check(arguments, monkeypatch)
    put = {words[1] for words in _commands() if words[0] == "put"}
    assert put == {one for one in arguments[1:] if one.isalpha()} | {PHP["command"][-1]}


@pytest.mark.parametrize(("order", "code"), [(9, 0), (10, 1), (101, 0)])
def test_the_consumers_command_fails_for_every_tenth_job(order: int, code: int) -> None:
    script = CONSUMER["command"][-1].replace("$$", "$")
    environment = {"RABBITDELAY_JOB_TOPIC": "orderclose", "RABBITDELAY_JOB_ATTEMPT": "2"}
    done = subprocess.run(
        ["sh", "-c", script],
        input=f'{{"order": {order}}}',
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, bool(done.stderr)) == (code, bool(code))
    assert done.stdout == f'orderclose {{"order": {order}}}, attempt 2\n'


def test_the_image_runs_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert _instructions("ENTRYPOINT") == ['["rabbitdelay"]']
    assert "rabbitdelay" in scripts
    (arguments,) = _instructions("CMD")
    command_line.check(yaml.safe_load(arguments), monkeypatch)


def test_a_command_that_does_not_exist_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.fail.Exception, match="No such option"):
        command_line.check(["put", "orderclose", "--wait", "10s"], monkeypatch)


# The gateway and the program that uses it


def test_the_gateway_listens_where_the_program_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    command_line.check(GATEWAY["command"], monkeypatch)
    assert "--host=0.0.0.0" in GATEWAY["command"]
    assert GATEWAY["ports"] == [f"127.0.0.1:{DEFAULT_PORT}:{DEFAULT_PORT}"]
    assert PHP["environment"]["RABBITDELAY_GATEWAY"] == f"http://gateway:{DEFAULT_PORT}"
    assert f"http://localhost:{DEFAULT_PORT}/readyz" in GATEWAY["healthcheck"]["test"][-1]


def test_the_program_waits_for_a_gateway_that_is_ready() -> None:
    assert PHP["depends_on"] == {"gateway": {"condition": "service_healthy"}}
    assert GATEWAY["healthcheck"]["test"][:3] == ["CMD", "python", "-c"]
    compile(GATEWAY["healthcheck"]["test"][3], "healthcheck", "exec")


def test_the_gateway_accepts_the_token_of_the_program() -> None:
    (token,) = read_tokens(GATEWAY["environment"]["RABBITDELAY_HTTP_TOKENS"].encode(), "compose")
    assert token.digest == digest_of(PHP["environment"]["RABBITDELAY_TOKEN"].encode())


def test_the_gateway_may_use_its_grace_period() -> None:
    seconds = int(GATEWAY["stop_grace_period"].removesuffix("s"))
    assert seconds > GatewaySettings().grace


def test_the_program_is_the_example() -> None:
    """The settings that it gets are settings that it reads."""
    source, target, mode = PHP["volumes"][0].split(":")
    interpreter, file, command, _topic = PHP["command"]
    program = (ROOT / source / Path(file).relative_to(target)).read_text()
    assert (interpreter, command, mode) == ("php", "work", "ro")
    assert f"'{command}' =>" in program
    for variable in PHP["environment"]:
        assert f"getenv('{variable}')" in program


# The broker


def test_the_broker_is_the_one_that_the_command_line_starts() -> None:
    assert RABBITMQ["image"] == docker.IMAGE


@pytest.mark.parametrize("service", OURS)
def test_the_services_wait_for_a_healthy_broker(service: dict[str, Any]) -> None:
    assert service["depends_on"] == {"rabbitmq": {"condition": "service_healthy"}}
    assert RABBITMQ["healthcheck"]["test"][:2] == ["CMD", "rabbitmq-diagnostics"]


@pytest.mark.parametrize("service", OURS)
def test_the_services_log_in_to_that_broker(service: dict[str, Any]) -> None:
    (broker,) = address.parse_all(service["environment"]["RABBITDELAY_URL"])
    assert broker.host in SERVICES
    login = RABBITMQ["environment"]
    assert (login["RABBITMQ_DEFAULT_USER"], login["RABBITMQ_DEFAULT_PASS"]) == (
        broker.user,
        broker.password,
    )


def test_the_broker_is_open_to_this_machine_only() -> None:
    assert RABBITMQ["ports"] == ["127.0.0.1:5672:5672", "127.0.0.1:15672:15672"]
    assert "ports" not in PUTTER


def test_the_data_outlives_the_container() -> None:
    """A node finds its data by its name, which has the name of the host in it."""
    volumes = dict(volume.split(":") for volume in RABBITMQ["volumes"])
    assert set(volumes) == set(COMPOSE["volumes"])
    assert list(volumes.values()) == ["/var/lib/rabbitmq"]
    assert RABBITMQ["hostname"] == "rabbitmq"


# The image


def test_the_build_has_every_file_of_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    packages = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    modules = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    needed = {"pyproject.toml", project["readme"], *project["license-files"], *packages, *modules}
    copied = {source for line in _instructions("COPY") for source in line.split()[:-1]}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {service["build"] for service in OURS} == {"."}
    assert copied == needed
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied


def test_the_image_does_not_run_as_root() -> None:
    (user,) = _instructions("USER")
    assert user != "root"
    assert f"useradd --create-home {user}" in _instructions("RUN")
