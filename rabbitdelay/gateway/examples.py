"""Examples of requests and answers, for the OpenAPI document."""

from typing import Any

from rabbitdelay.gateway.bodies.put_requests import NDJSON
from rabbitdelay.models import JSON

_ID = "rd01a1f5f9671850e8821b3c4c5ed7"
_LEASE = "Y2FzaC0xOjE3Y2M5NTE2"
_JOB = {"id": "order-42", "topic": "orderclose", "put": "2027-01-01T12:00:00.000Z"}
_PUT = _JOB | {"due": "2027-01-01T12:30:00.000Z"}
_PARKED = _PUT | {"attempt": 5, "content_type": JSON, "body_bytes": 12}
_TOPIC = {
    "topic": "orderclose",
    "ready": 3,
    "reserved": 1,
    "buried": 0,
    "consumers": 2,
    "paused": False,
}
_WHICH: dict[str, Any] = {"ids": ["order-42"]}
_ALL: dict[str, Any] = {"all": True, "limit": 100}

REQUESTS: dict[tuple[str, str, str], Any] = {
    ("putJob", JSON, "delayed"): {"topic": "orderclose", "body": {"order": 42}, "delay": "30m"},
    ("putJob", JSON, "all options"): {
        "topic": "orderclose",
        "body": {"order": 42},
        "at": "2027-01-01T12:30:00Z",
        "ttr": 30,
        "id": "order-42",
        "max_attempts": 5,
        "backoff": "10s",
        "backoff_max": "1h",
        "callback": "https://shop.example/close",
        "headers": {"trace-id": "4bf92f"},
        "reply": False,
    },
    ("putJobs", JSON, "two jobs"): {
        "jobs": [
            {"topic": "orderclose", "body": {"order": 42}, "delay": "30m"},
            {"topic": "mail", "body": "hello", "content_type": "text/plain"},
        ]
    },
    ("putJobs", NDJSON, "two jobs"): (
        '{"topic": "orderclose", "body": {"order": 42}, "delay": "30m"}\n'
        '{"topic": "mail", "body": {"to": 7}}\n'
    ),
    ("replaceJob", JSON, "later"): {
        "topic": "orderclose",
        "body": {"order": 42},
        "delay": "1h",
    },
    ("deleteJobs", JSON, "two ids"): {"ids": ["order-42", "order-43"]},
    ("popJobs", JSON, "one job"): {"topics": "orderclose", "wait": 20},
    ("popJobs", JSON, "several topics"): {"topics": ["orderclose", "mail"], "max": 10, "wait": 20},
    ("finishJobs", JSON, "one"): {"lease": _LEASE},
    ("finishJobs", JSON, "several"): {"leases": [_LEASE]},
    ("releaseJob", JSON, "retry in 30 s"): {"lease": _LEASE, "delay": 30},
    ("touchJob", JSON, "more time"): {"lease": _LEASE},
    ("buryJob", JSON, "for a person"): {"lease": _LEASE, "reason": "no such customer"},
    ("kickBuried", JSON, "by id"): _WHICH,
    ("kickBuried", JSON, "all"): _ALL,
    ("dropBuried", JSON, "by id"): _WHICH,
    ("retryUnrouted", JSON, "all"): _ALL,
    ("dropUnrouted", JSON, "of a topic"): {"all": True, "topic": "orderclose"},
    ("runCommand", "*/*", "add"): {
        "command": "add",
        "topic": "orderclose",
        "id": "order-42",
        "delay": 1800,
        "TTR": 60,
        "body": '{"order": 42}',
    },
    ("runCommand", "*/*", "pop"): {"command": "pop", "topic": "orderclose"},
    ("push", "*/*", "in half an hour"): {
        "topic": "orderclose",
        "id": "order-42",
        "delay": 1800,
        "ttr": 60,
        "body": '{"order": 42}',
    },
    ("pop", "*/*", "by priority"): {"topic": "orderclose,mail"},
    ("finish", "*/*", "by id"): {"id": "order-42"},
    ("delete", "*/*", "by id"): {"id": "order-42"},
    ("get", "*/*", "by id"): {"id": "order-42"},
}
"""Example requests by operation, media type and title."""

ANSWERS: dict[tuple[str, int], Any] = {
    ("putJob", 201): _PUT | {"id": _ID},
    ("putJobs", 201): {"jobs": [_PUT]},
    ("replaceJob", 200): _PUT,
    ("deleteJobs", 200): {"deleted": 2},
    ("getResponse", 200): {"id": _ID, "content_type": JSON, "body": {"closed": True}},
    ("popJobs", 200): {
        "jobs": [
            _PUT
            | {
                "lease": _LEASE,
                "attempt": 1,
                "max_attempts": 10,
                "ttr": 60.0,
                "time_left": 59.998,
                "redeliveries": 0,
                "callback": None,
                "content_type": JSON,
                "headers": {},
                "body": {"order": 42},
            }
        ]
    },
    ("touchJob", 200): {"lease": _LEASE, "time_left": 60.0},
    ("listTopics", 200): {"topics": [_TOPIC], "unrouted": 0},
    ("getTopic", 200): _TOPIC,
    ("purgeTopic", 200): {"removed": 4},
    ("listBuried", 200): {
        "total": 1,
        "jobs": [
            _PARKED
            | {
                "buried": "2027-01-01T12:31:00.000Z",
                "reason": "attempts used up",
                "error": "no such order",
                "error_type": "KeyError",
            }
        ],
    },
    ("kickBuried", 200): {"kicked": 1, "stayed": 0, "dropped_deleted": 0},
    ("dropBuried", 200): {"dropped": 1},
    ("listUnrouted", 200): {
        "total": 1,
        "jobs": [
            _PARKED
            | {
                "exchange": "rabbitdelay.ready",
                "routing_key": "orderclose",
                "why": "no ready queue",
                "remaining": 0.0,
            }
        ],
    },
    ("retryUnrouted", 200): {"retried": 1, "stayed": 0},
    ("dropUnrouted", 200): {"dropped": 1},
    ("isAlive", 200): {"status": "alive"},
    ("isReady", 200): {"status": "ready"},
    ("runCommand", 200): {"success": True, "error": "", "id": "order-42", "value": ""},
    ("push", 200): {"code": 0, "message": "ok", "data": None},
    ("pop", 200): {
        "code": 0,
        "message": "ok",
        "data": {"id": "order-42", "body": '{"order": 42}'},
    },
    ("finish", 200): {"code": 0, "message": "ok", "data": None},
    ("delete", 200): {"code": 0, "message": "ok", "data": None},
    ("get", 200): {"code": 1, "message": "jobs cannot be looked up by id", "data": None},
}
"""Example answers by operation and status."""
