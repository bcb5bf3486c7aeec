"""The public surface: exactly what `__all__` and the lists here name."""

import inspect
import typing
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import rabbitdelay
from rabbitdelay import aio, errors

CLIENT = {
    *("topology", "connect", "close"),
    *("put", "put_nowait", "put_many", "replace", "reschedule"),
    *("delete", "delete_many", "purge", "pause", "resume"),
    *("buried", "unrouted"),
    *("pop", "response", "reply_queue"),
    *("topics", "count", "stats", "namespaces", "examine", "tombstones"),
}
WORKER = {
    *("client", "handler", "before", "after", "on_error"),
    *("run", "stop", "was_stopped_at_once", "stats", "last_stats"),
}
FRONTS = (rabbitdelay, aio)
IDS = ("sync", "aio")
RESULTS = (rabbitdelay.WorkerStats, rabbitdelay.Statistics, rabbitdelay.Verification)
HANDED_OUT = (
    *(rabbitdelay.BuriedJobs, rabbitdelay.UnroutedJobs),
    *(aio.BuriedJobs, aio.UnroutedJobs),
)
"""Objects that a client returns, and that users do not construct."""


def public_names(module: ModuleType) -> set[str]:
    """Return the names of a module, without its submodules and its private names."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }


def public_attributes(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("module", FRONTS, ids=IDS)
def test_a_module_exports_exactly_its_public_names(module: ModuleType) -> None:
    names: list[str] = module.__all__
    assert names == sorted(names)
    assert set(names) == public_names(module)


@pytest.mark.parametrize("module", FRONTS, ids=IDS)
def test_a_client_has_exactly_these_attributes(module: Any) -> None:  # noqa: ANN401 - a front
    assert public_attributes(module.Client("amqp://localhost")) == CLIENT


@pytest.mark.parametrize("module", FRONTS, ids=IDS)
def test_a_worker_has_exactly_these_attributes(module: Any) -> None:  # noqa: ANN401 - a front
    assert public_attributes(module.Worker("amqp://localhost")) == WORKER


def test_every_error_is_exported() -> None:
    kinds = [value for value in vars(errors).values() if inspect.isclass(value)]
    ours = {kind.__name__ for kind in kinds if issubclass(kind, errors.RabbitDelayError)}
    assert len(ours) > 30
    assert ours <= set(rabbitdelay.__all__)


def classes_in(annotation: object) -> Iterator[type]:
    """Return the classes of this package that an annotation names."""
    if inspect.isclass(annotation) and annotation.__module__.partition(".")[0] == "rabbitdelay":
        yield annotation
    for argument in typing.get_args(annotation):
        yield from classes_in(argument)


def hints_of(kind: type) -> Iterator[object]:
    """Yield the annotations of a class's public fields, properties and methods."""
    yield from typing.get_type_hints(kind).values()
    for name in public_attributes(kind) | (set() if kind in HANDED_OUT else {"__init__"}):
        value: Any = inspect.getattr_static(kind, name)
        function = value.fget if isinstance(value, property) else value
        if inspect.isfunction(function):
            yield from typing.get_type_hints(function).values()


@pytest.mark.parametrize("module", FRONTS, ids=IDS)
def test_every_class_in_a_signature_is_exported(module: ModuleType) -> None:
    exported = {getattr(one, name) for one in FRONTS for name in one.__all__}
    named = {
        found
        for kind in (module.Client, module.Worker, *RESULTS, *HANDED_OUT)
        for hint in hints_of(kind)
        for found in classes_in(hint)
    }
    assert len(named) > 8
    assert named <= exported
