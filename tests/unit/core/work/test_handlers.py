"""Handlers: which argument each parameter receives, and which functions are refused."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from rabbitdelay.core.work.error_policies import Policies
from rabbitdelay.core.work.handlers import (
    Handler,
    ParameterBinding,
    bind,
    error_hook,
    make_handler,
)
from rabbitdelay.core.work.retry import RetryPolicy
from rabbitdelay.errors import InvalidConfiguration, NotAJob
from rabbitdelay.executors.reserved_job import ReservedJob
from rabbitdelay.models import BYTES, JSON, TEXT, Job


class Order(BaseModel):
    order: int


@dataclass
class Invoice:
    order: int


class Payment(TypedDict):
    order: int


def job(payload: bytes = b'{"order": 42}', content_type: str = JSON) -> Job:
    return Job("t", "job-1", "token", 0, 0, 60_000, payload, content_type)


JOB = job()


def body_and_job(order: Order, job: Job) -> None: ...


def job_and_body(it: Job, order: Order) -> None: ...


def any_body(body): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - on purpose


def any_body_and_job(body, job): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - on purpose


def only_job(job): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - on purpose


def only_job_by_type(it: ReservedJob) -> None: ...


def job_with_a_note(it: Annotated[Job, "held"]) -> None: ...


def a_dict(payload: dict[str, int]) -> None: ...


def a_dataclass(invoice: Invoice) -> None: ...


def a_typed_dict(payment: Payment) -> None: ...


def a_dict_that_is_named_job(job: dict[str, int]) -> None: ...


def anything(body: Any) -> None: ...  # noqa: ANN401 - on purpose


def an_object(body: object) -> None: ...


def nothing() -> None: ...


def with_defaults(order: Order, database: str = "db", *, retries: int = 3) -> None: ...


def with_more(order: Order, *rest: int, **options: int) -> None: ...


def by_keyword(*, order: Order, job: Job) -> None: ...


def as_text(order: "Order", job: "Job") -> None: ...


async def coroutine(order: Order) -> None: ...


def with_database(database: str, order: Order, it: Job) -> None: ...


def decorated(function: Callable[..., None]) -> Callable[..., None]:
    @wraps(function)
    def wrapper(*args: object, **options: object) -> None: ...

    return wrapper


class Shop:
    def close(self, order: Order, job: Job) -> None: ...

    @classmethod
    def close_all(cls, order: Order) -> None: ...

    @staticmethod
    def close_one(order: Order) -> None: ...

    def __call__(self, order: Order, it: Job) -> None: ...


class AsyncShop:
    async def __call__(self, order: Order) -> None: ...


ORDER = Order(order=42)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (body_and_job, {"order": ORDER, "job": JOB}),
        (job_and_body, {"it": JOB, "order": ORDER}),
        (any_body, {"body": {"order": 42}}),
        (any_body_and_job, {"body": {"order": 42}, "job": JOB}),
        (only_job, {"job": JOB}),
        (only_job_by_type, {"it": JOB}),
        (job_with_a_note, {"it": JOB}),
        (a_dict, {"payload": {"order": 42}}),
        (a_dataclass, {"invoice": Invoice(42)}),
        (a_typed_dict, {"payment": {"order": 42}}),
        (a_dict_that_is_named_job, {"job": {"order": 42}}),
        (anything, {"body": {"order": 42}}),
        (an_object, {"body": {"order": 42}}),
        (nothing, {}),
        (with_defaults, {"order": ORDER}),
        (with_more, {"order": ORDER}),
        (by_keyword, {"order": ORDER, "job": JOB}),
        (as_text, {"order": ORDER, "job": JOB}),
        (coroutine, {"order": ORDER}),
        (decorated(body_and_job), {"order": ORDER, "job": JOB}),
        (partial(with_database, "db"), {"order": ORDER, "it": JOB}),
        (partial(with_database, database="db"), {"order": ORDER, "it": JOB}),
        (partial(partial(with_database, "db")), {"order": ORDER, "it": JOB}),
        (partial(Shop().close), {"order": ORDER, "job": JOB}),
        (partial(Shop()), {"order": ORDER, "it": JOB}),
        (Shop().close, {"order": ORDER, "job": JOB}),
        (Shop.close_all, {"order": ORDER}),
        (Shop.close_one, {"order": ORDER}),
        (Shop(), {"order": ORDER, "it": JOB}),
        (AsyncShop(), {"order": ORDER}),
        (lambda order: order, {"order": {"order": 42}}),
    ],
)
def test_each_parameter_receives_its_argument(
    function: Callable[..., object], arguments: dict[str, Any]
) -> None:
    found = bind(function).arguments(JOB)
    assert found == arguments
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in arguments.items()
    }
    inspect.signature(function).bind(**found)


@pytest.mark.parametrize("function", [any_body, anything, an_object])
def test_an_unannotated_body_is_not_validated(function: Callable[..., object]) -> None:
    assert bind(function).body_adapter is None


def test_string_annotations_are_resolved() -> None:
    """As `from __future__ import annotations` makes them."""
    source = (
        "from __future__ import annotations\n"
        "from rabbitdelay.models import Job\n"
        "def handle(order: dict[str, int], it: Job) -> None: ...\n"
    )
    module: dict[str, Any] = {}
    exec(source, module)  # noqa: S102 - it is ours
    found = bind(module["handle"]).arguments(JOB)
    assert found == {"order": {"order": 42}, "it": JOB}


def two_bodies(first: int, second: int) -> None: ...


def two_jobs(first: Job, second: Job) -> None: ...


def positional(order: Order, /) -> None: ...


def unknown_name(order: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def unknown_attribute(order: "pytest.Missing") -> None: ...  # type: ignore[name-defined]


def unreadable(order: "not a type") -> None: ...  # type: ignore[valid-type]  # noqa: F722


def undecided(*args: object, **options: object) -> None: ...


class Opaque: ...


def unvalidated(order: Opaque) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (two_bodies, r"two_bodies must take .*\(first, second\): annotate the job with Job"),
        (two_jobs, r"two_jobs must take .*\(first, second\)"),
        (positional, "positional must not have positional-only"),
        (unknown_name, "unknown_name has an unknown annotation: .*Missing"),
        (unknown_attribute, "unknown_attribute has an unknown annotation: .*Missing"),
        (unreadable, "unreadable has an unknown annotation"),
        (unvalidated, "unvalidated: pydantic cannot validate a body as .*Opaque"),
        (undecided, "undecided must name its parameters.*functools.wraps"),
        (partial(two_bodies), r"must take"),
        (Shop.close, r"Shop.close must take .*\(self, order, job\)"),
        (42, "handler 42 cannot be called"),
        (dict.get, "positional-only"),
    ],
)
def test_an_invalid_handler_is_explained(function: Callable[..., object], says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says):
        bind(function)


def test_constraints_in_an_annotation_are_checked() -> None:
    def handle(amount: Annotated[int, Field(gt=0)]) -> None: ...

    assert bind(handle).arguments(job(b"1")) == {"amount": 1}
    with pytest.raises(NotAJob, match="greater than 0"):
        bind(handle).arguments(job(b"-1"))


@pytest.mark.parametrize(
    ("payload", "content_type", "kind", "value"),
    [
        (b"[1, 2]", JSON, list[int], [1, 2]),
        (b'"2027-01-01"', JSON, str, "2027-01-01"),
        ("grüße".encode(), TEXT, str, "grüße"),
        (b"42", TEXT, int, 42),
        (b"\x00\xff", BYTES, bytes, b"\x00\xff"),
        (b"null", JSON, Order | None, None),
    ],
)
def test_a_body_is_validated_by_its_content_type(
    payload: bytes, content_type: str, kind: object, value: object
) -> None:
    def handle(body): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - added below

    handle.__annotations__["body"] = kind
    assert bind(handle).arguments(job(payload, content_type)) == {"body": value}


def test_an_invalid_body_raises_not_a_job() -> None:
    with pytest.raises(NotAJob, match="body: order: Input should be a valid integer"):
        bind(body_and_job).arguments(job(b'{"order": "forty-two"}'))


def test_a_handler_without_a_body_accepts_any_body() -> None:
    bad = job(b"{", JSON)
    assert bind(only_job).arguments(bad) == {"job": bad}


def make(topic: str = "t", function: Callable[..., object] = any_body, **options: Any) -> Handler:  # noqa: ANN401
    return make_handler(topic, function, policies=Policies(RetryPolicy()), **options)


def test_a_handler_has_its_options() -> None:
    handler = make(ttr=timedelta(minutes=5), concurrency=3, auto_touch=True, keep_responses=True)
    assert (handler.topic, handler.function, handler.ttr_ms) == ("t", any_body, 300_000)
    assert handler.binding == ParameterBinding("body", None, None)
    assert (handler.concurrency, handler.auto_touch, handler.keep_responses) == (3, True, True)
    assert make().ttr_ms is None
    assert (make().auto_touch, make().keep_responses) == (False, False)


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (coroutine, True),
        (partial(coroutine), True),
        (AsyncShop(), True),
        (AsyncShop().__call__, True),
        (any_body, False),
        (Shop(), False),
        (Shop().close, False),
    ],
)
def test_coroutine_functions_are_recognised(
    function: Callable[..., object],
    is_async: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert make(function=function).is_async is is_async


@pytest.mark.parametrize(
    ("topic", "options", "says"),
    [
        ("a b", {}, "may only contain"),
        ("", {}, "topic must be"),
        ("t", {"ttr": 0}, "ttr must be"),
        ("t", {"ttr": "5m"}, "ttr must be a number"),
    ],
)
def test_an_invalid_option_raises_invalid_configuration(
    topic: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=says):
        make(topic, **options)


# Hooks


def test_an_error_hook_may_leave_out_the_outcome() -> None:
    seen: list[tuple[object, ...]] = []
    error_hook(lambda job, error: seen.append((job, error)))(1, 2, 3)
    error_hook(lambda job, error, outcome: seen.append((job, error, outcome)))(1, 2, 3)
    error_hook(lambda job, error, limit=9: seen.append((job, error, limit)))(1, 2, 3)
    error_hook(lambda job, error, outcome=9: seen.append((job, error, outcome)))(1, 2, 3)
    assert seen == [(1, 2), (1, 2, 3), (1, 2, 9), (1, 2, 3)]


def test_a_hook_whose_parameters_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="hook getattr must take"):
        error_hook(getattr)
