from pathlib import Path

import pytest

from rabbitdelay.errors import BrokerProcessError
from rabbitdelay.private_broker.installation.installation import Installation, find_installation
from rabbitdelay.private_broker.installation.plugins import write_view


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def plugin(home: Path, name: str, *needs: str) -> None:
    folder = home / "plugins" / f"{name}-1.0" / "ebin"
    folder.mkdir(parents=True)
    applications = ",\n  ".join(["kernel", *needs])
    (folder / f"{name}.app").write_text(
        f"{{application,'{name}',[{{vsn,\"1.0\"}},{{applications,[{applications}]}},{{mod,{{}}}}]}}."
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create a root with RabbitMQ in Debian's layout."""
    folder = tmp_path / "root"
    executable(folder / "usr/lib/rabbitmq/lib/rabbitmq_server-9.9.9/sbin/rabbitmq-server")
    executable(folder / "usr/bin/epmd")
    link = folder / "usr/lib/rabbitmq/bin/rabbitmq-server"
    link.parent.mkdir()
    link.symlink_to("../lib/rabbitmq_server-9.9.9/sbin/rabbitmq-server")
    return folder


def test_an_installation_in_a_root_has_paths_relative_to_that_root(root: Path) -> None:
    found = find_installation(environment={"RABBITDELAY_RABBITMQ_ROOT": str(root)})
    assert found == Installation(
        Path("/usr/lib/rabbitmq/bin/rabbitmq-server"), Path("/usr/bin/epmd"), root
    )
    assert found.home == Path("/usr/lib/rabbitmq/lib/rabbitmq_server-9.9.9")


def test_a_root_without_rabbitmq_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BrokerProcessError, match="No rabbitmq-server in"):
        find_installation(tmp_path, {})


def test_a_variable_with_a_missing_path_is_rejected() -> None:
    with pytest.raises(BrokerProcessError, match="RABBITDELAY_RABBITMQ_SERVER is /nowhere"):
        find_installation(environment={"RABBITDELAY_RABBITMQ_SERVER": "/nowhere"})


def test_the_server_is_preferred_to_the_wrapper_on_the_path(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages put a wrapper on the PATH that switches to another user."""
    monkeypatch.setattr("rabbitdelay.private_broker.installation.installation._SERVER_PATTERNS", ())
    wrapper = executable(root / "usr/lib/rabbitmq/bin/rabbitmq-script-wrapper")
    on_path = tmp_path / "sbin" / "rabbitmq-server"
    on_path.parent.mkdir()
    on_path.symlink_to(wrapper)
    executable(tmp_path / "sbin" / "epmd")
    found = find_installation(environment={"PATH": str(tmp_path / "sbin")})
    assert found is not None
    assert found.server == wrapper.with_name("rabbitmq-server")


def test_a_program_in_a_root_runs_in_a_chroot_with_its_own_mounts(root: Path) -> None:
    installation = Installation(Path("/server"), Path("/epmd"), root)
    command = installation.command(["/server"], broker=Path("/data"), scratch=Path("/data/mount"))
    assert command[:4] == ["unshare", "--mount", "sh", "-c"]
    assert command[-4:] == [str(root), "/data", "/data/mount", "/server"]


def test_the_view_contains_only_the_management_plugin_and_its_dependencies(tmp_path: Path) -> None:
    home = tmp_path / "home"
    plugin(home, "rabbit", "ra", "ranch")
    plugin(home, "ra")
    plugin(home, "ranch", "ssl")
    plugin(home, "rabbitmq_management", "rabbit", "cowboy")
    plugin(home, "cowboy", "ranch")
    plugin(home, "rabbitmq_stomp", "rabbit")
    server = executable(home / "sbin" / "rabbitmq-server")
    view = tmp_path / "view"
    assert write_view(Installation(server, Path("/epmd")), view)
    names = {folder.name.removesuffix("-1.0") for folder in (view / "plugins").iterdir()}
    assert names == {"rabbit", "ra", "ranch", "rabbitmq_management", "cowboy"}
    assert (view / "sbin" / "rabbitmq-server").exists()


def test_an_installation_with_an_unexpected_layout_gets_no_view(tmp_path: Path) -> None:
    server = executable(tmp_path / "sbin" / "rabbitmq-server")
    assert not write_view(Installation(server, Path("/epmd")), tmp_path / "view")
