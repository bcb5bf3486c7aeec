"""The status line of `serve`."""

from rabbitdelay.cli.output.gateway_status import status_line
from rabbitdelay.gateway.gateway import GatewayStats


def test_the_state_of_the_broker_is_shown_without_its_url() -> None:
    problem = "amqp://guest:***@127.0.0.1:28508: cannot connect ([Errno 111] Connection refused)"
    line = status_line(GatewayStats(3, 2, problem, stopping=False), 1_000, 7.4).plain
    assert line == (
        "requests 1,000  7/s  waiting 3  leases 2  "
        "broker cannot connect ([Errno 111] Connection refused)"
    )


def test_a_broker_in_use_and_a_gateway_that_stops_are_shown() -> None:
    line = status_line(GatewayStats(0, 1, None, stopping=True), 5, 0).plain
    assert line == "requests 5  0/s  waiting 0  leases 1  broker connected  stopping"
