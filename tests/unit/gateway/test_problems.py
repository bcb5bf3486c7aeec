"""Problems: every error has a status, a title and a name."""

import inspect
import json

import pytest

from rabbitdelay import errors
from rabbitdelay.gateway import problems
from rabbitdelay.gateway.http.request_id import current_request_id
from rabbitdelay.gateway.problems import KINDS, response_to

ERRORS = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, errors.RabbitDelayError)
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_public_error_is_in_the_table(kind: type[Exception]) -> None:
    assert kind in KINDS
    assert 400 <= KINDS[kind].status <= 503


def test_the_table_has_nothing_else() -> None:
    assert set(KINDS) == set(ERRORS)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (errors.LeaseLost, "lease-lost"),
        (errors.NotAJob, "not-a-job"),
        (errors.InvalidJob, "invalid-job"),
        (errors.PutManyFailed, "put-many-failed"),
        (errors.RabbitDelayError, "rabbit-delay-error"),
    ],
)
def test_a_type_is_the_name_of_the_error(kind: type[Exception], name: str) -> None:
    assert problems.name_of(kind) == name


def document(error: Exception) -> tuple[int, dict[str, object]]:
    response = response_to(error)
    assert response.media_type == "application/problem+json"
    value = json.loads(bytes(response.body))
    assert value["status"] == response.status_code
    return response.status_code, value


def test_an_outcome_that_is_unknown_is_accepted_and_not_a_failure() -> None:
    status, value = document(errors.OutcomeUnknown("not confirmed", sent=True))
    assert (status, value["sent"]) == (202, True)
    status, value = document(errors.BrokerBlocked("alarm", sent=True))
    assert (status, value["type"]) == (202, "/problems/broker-blocked")


def test_a_put_that_was_certainly_not_sent_can_be_repeated() -> None:
    error = errors.OutcomeUnknown("not sent", sent=False)
    assert document(error)[0] == 503
    assert int(response_to(error).headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (errors.InvalidJob("x"), 422),
        (errors.OutcomeUnknown("x", sent=True), 503),
        (errors.BrokerUnreachable("x"), 503),
        (ValueError("x"), 500),
        (None, 503),
    ],
)
def test_a_batch_has_the_status_of_what_stopped_it(cause: Exception | None, status: int) -> None:
    error = errors.PutManyFailed("stopped", confirmed=2, unconfirmed=[2], taken=3)
    error.__cause__ = cause
    found, value = document(error)
    assert found == status
    assert (value["confirmed"], value["unconfirmed"], value["taken"]) == (2, [2], 3)


def test_an_error_of_a_subclass_is_reported_as_the_error_that_clients_know() -> None:
    class Special(errors.LeaseLost):
        pass

    assert document(Special("x"))[1]["type"] == "/problems/lease-lost"


def test_an_unexpected_error_does_not_show_its_text() -> None:
    current_request_id.set("id-1")
    try:
        response = problems.internal_error()
    finally:
        current_request_id.set(None)
    value = json.loads(bytes(response.body))
    assert (value["status"], value["request_id"]) == (500, "id-1")
