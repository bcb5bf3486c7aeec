"""Checks of the broker: its version, settings, nodes and clock, and the user's permissions."""

from collections.abc import Iterator, Sequence

from rabbitdelay import duration
from rabbitdelay.core.administration import policies
from rabbitdelay.core.administration.policies import PolicedObject
from rabbitdelay.core.doctor.facts import Facts, Unknown
from rabbitdelay.core.doctor.report import Check, Status, counted, first_names
from rabbitdelay.core.topology import ladder

LEAST_MESSAGE_BYTES = 1_114_112
"""Size of the largest message that must be accepted: a body of 1 MiB and headers of 64 KiB."""
DEFAULT_CONSUMER_TIMEOUT_MS = 30 * ladder.MINUTE_MS
LONGEST_DEAD_LETTER_RETRY_MS = 10_000
SHORTEST_DEAD_LETTER_RETRY_MS = 1_000
CLOCK_TOLERANCE_SECONDS = 3.0
"""The broker's clock is read from an HTTP header, with a resolution of one second."""
CLOCK_PROBLEM_SECONDS = 60.0

_OLDEST_VERSION = (3, 10)
_VERSIONS_THAT_WANT_CONFIGURE = ("4.2.6", "4.3.0")
_NEEDED_FLAGS = ("quorum_queue", "stream_queue")
_ENOUGH_MEMBERS = 3

DEAD_LETTER_RETRY = "dead_letter_worker_publisher_confirm_timeout"
DEAD_LETTER_LINE = f"[{{rabbit, [{{{DEAD_LETTER_RETRY}, 5000}}]}}]."
"""The line of advanced.config that every broker should have."""


def _version(facts: Facts) -> Iterator[Check]:
    name = "version"
    if isinstance(facts.version, Unknown):
        yield Check(name, "unknown", facts.version.reason)
        return
    said = f"RabbitMQ {facts.version}"
    if _parse_version(facts.version) < _OLDEST_VERSION:
        fix = "upgrade to 3.10 or later; 4.3.1 or later is best"
        yield Check(name, "problem", f"{said} is too old", fix)
    elif facts.version in _VERSIONS_THAT_WANT_CONFIGURE:
        reason = f"{said} refuses clients with declare=False that lack configure permission"
        yield Check(name, "warning", reason, "upgrade to the next patch release")
    else:
        yield Check(name, "ok", said)


def _parse_version(text: str) -> tuple[int, ...]:
    digits = (part for part in text.split(".")[:2] if part.isdigit())
    return tuple(map(int, digits))


def _management(facts: Facts) -> Iterator[Check]:
    if isinstance(facts.management, Unknown):
        yield Check("management API", "unknown", facts.management.reason)
    else:
        yield Check("management API", "ok", "answers")


def _feature_flags(facts: Facts) -> Iterator[Check]:
    name, fix = "feature flags", "rabbitmqctl enable_feature_flag all"
    if isinstance(facts.feature_flags, Unknown):
        yield Check(name, "unknown", facts.feature_flags.reason)
        return
    off = [flag for flag, state in sorted(facts.feature_flags.items()) if state != "enabled"]
    if needed := [flag for flag in off if flag in _NEEDED_FLAGS]:
        yield Check(name, "problem", f"{first_names(needed)} must be enabled", fix)
    elif off:
        reason = f"{len(off)} disabled ({first_names(off)}); the next upgrade may require them"
        yield Check(name, "warning", reason, fix)
    else:
        yield Check(name, "ok", "all stable ones are enabled")


def _dead_letter_retry(facts: Facts) -> Iterator[Check]:
    name = "dead-letter retry"
    fix = f"put `{DEAD_LETTER_LINE}` into advanced.config and restart the node"
    if facts.topology.queue_type == "classic":
        yield Check(name, "ok", "does not apply to classic queues")
    elif isinstance(facts.settings, Unknown):
        see = f"rabbitmqctl eval 'application:get_env(rabbit, {DEAD_LETTER_RETRY}).'"
        reason = f"{facts.settings.reason}; `{see}` on a node shows it"
        yield Check(name, "unknown", reason, f"unless it says 5000, {fix}")
    else:
        yield _judge_retry(name, facts.settings.dead_letter_retry_ms, fix)


def _judge_retry(name: str, value_ms: int | None, fix: str) -> Check:
    if value_ms is None or value_ms > LONGEST_DEAD_LETTER_RETRY_MS:
        shown = "not set" if value_ms is None else duration.describe(value_ms)
        reason = f"{DEAD_LETTER_RETRY} is {shown}: hold queues may stall after a restart"
        return Check(name, "problem", reason, fix)
    if value_ms < SHORTEST_DEAD_LETTER_RETRY_MS:
        reason = f"{duration.describe(value_ms)} is short: a busy broker delivers jobs twice"
        return Check(name, "warning", reason, fix)
    return Check(name, "ok", f"after {duration.describe(value_ms)}")


def _consumer_timeout(facts: Facts) -> Iterator[Check]:
    name, ttr = "consumer timeout", duration.describe(facts.longest_ttr_ms)
    fix = f"rabbitmq.conf: consumer_timeout = {2 * facts.longest_ttr_ms}"
    known = _consumer_timeouts_ms(facts)
    default = duration.describe(DEFAULT_CONSUMER_TIMEOUT_MS)
    if known and min(known) <= facts.longest_ttr_ms:
        shown = duration.describe(min(known))
        reason = f"{shown}, not longer than the longest ttr of {ttr}: jobs run twice"
        yield Check(name, "problem", reason, f"{fix} (or change the policy that sets it)")
    elif not isinstance(facts.settings, Unknown):
        shown = duration.describe(min(known)) if known else "off"
        yield Check(name, "ok", f"{shown}; the longest ttr is {ttr}")
    elif facts.longest_ttr_ms >= DEFAULT_CONSUMER_TIMEOUT_MS:
        reason = (
            f"{facts.settings.reason}; its default of {default} is too short for a ttr of {ttr}"
        )
        yield Check(name, "warning", reason, f"unless set already: {fix}")
    else:
        reason = f"{facts.settings.reason}; its default of {default} is enough for a ttr of {ttr}"
        yield Check(name, "unknown", reason, f"if it was lowered: {fix}")


def _consumer_timeouts_ms(facts: Facts) -> list[int]:
    by_policy: Sequence[PolicedObject] = () if isinstance(facts.policed, Unknown) else facts.policed
    found = policies.consumer_timeouts_ms(by_policy)
    if not isinstance(facts.settings, Unknown) and facts.settings.consumer_timeout_ms is not None:
        found.append(facts.settings.consumer_timeout_ms)
    return found


def _max_message_size(facts: Facts) -> Iterator[Check]:
    name, fix = "max message size", "rabbitmq.conf: max_message_size = 16777216"
    least = f"{LEAST_MESSAGE_BYTES:,} bytes"
    settings = facts.settings
    size = None if isinstance(settings, Unknown) else settings.max_message_bytes
    if facts.takes_large_messages is False or (size or LEAST_MESSAGE_BYTES) < LEAST_MESSAGE_BYTES:
        yield Check(name, "problem", f"messages of {least} are refused", fix)
    elif size is not None:
        yield Check(name, "ok", f"{size:,} bytes")
    elif isinstance(facts.takes_large_messages, Unknown):
        yield Check(name, "unknown", facts.takes_large_messages.reason)
    else:
        yield Check(name, "ok", f"a message of {least} was accepted")


def _alarms(facts: Facts) -> Iterator[Check]:
    name = "alarms"
    fix = "free memory or disk space, or raise vm_memory_high_watermark / lower disk_free_limit"
    nodes = () if isinstance(facts.nodes, Unknown) else facts.nodes
    raised = [f"{alarm} on {node.name}" for node in nodes for alarm in node.alarms]
    if raised:
        yield Check(name, "problem", f"{first_names(raised)}: puts wait until it ends", fix)
    elif facts.is_blocked is True:
        yield Check(name, "problem", "the broker blocks publishers: puts wait", fix)
    elif isinstance(facts.nodes, Unknown) and isinstance(facts.is_blocked, Unknown):
        yield Check(name, "unknown", facts.is_blocked.reason)
    else:
        yield Check(name, "ok", "none")


def _nodes(facts: Facts) -> Iterator[Check]:
    name = "nodes"
    if isinstance(facts.nodes, Unknown):
        yield Check(name, "unknown", facts.nodes.reason)
        return
    down = [node.name for node in facts.nodes if not node.is_running]
    parted = [node.name for node in facts.nodes if node.is_partitioned]
    if parted:
        fix = "repair the network, then restart the nodes of the smaller side"
        yield Check(name, "problem", f"network partition, seen by {first_names(parted)}", fix)
    elif down:
        yield Check(name, "problem", f"{first_names(down)}: not running", "start it again")
    elif len(facts.nodes) < _ENOUGH_MEMBERS:
        loss = "its loss" if len(facts.nodes) == 1 else "the loss of one"
        reason = f"{counted(len(facts.nodes), 'node')}: {loss} stops all jobs"
        yield Check(name, "warning", reason, "run three in production")
    else:
        yield Check(name, "ok", f"{len(facts.nodes)}, all running")


def _members(facts: Facts) -> Iterator[Check]:
    name = "queue members"
    if isinstance(facts.queues, Unknown):
        yield Check(name, "unknown", facts.queues.reason)
        return
    replicated = [queue for queue in facts.queues if queue.members]
    headless = [queue.name for queue in replicated if 2 * len(queue.online) <= len(queue.members)]
    few = [queue.name for queue in replicated if len(queue.members) < _members_wanted(facts)]
    if headless:
        fix = "start the nodes of their members"
        yield Check(name, "problem", f"no majority: {first_names(headless)}", fix)
    elif few:
        fix = "rabbitmq-queues grow NODE all, for each node that has no member"
        yield Check(name, "warning", f"fewer members than nodes: {first_names(few)}", fix)
    else:
        yield Check(
            name, "ok", f"{counted(len(replicated), 'replicated queue')}, all with a majority"
        )


def _members_wanted(facts: Facts) -> int:
    nodes = () if isinstance(facts.nodes, Unknown) else facts.nodes
    return min(_ENOUGH_MEMBERS, len(nodes))


def _clock(facts: Facts) -> Iterator[Check]:
    name, ahead = "clock", facts.clock_ahead_seconds
    if isinstance(ahead, Unknown):
        yield Check(name, "unknown", ahead.reason)
        return
    if abs(ahead) <= CLOCK_TOLERANCE_SECONDS:
        yield Check(name, "ok", "this machine agrees with the broker, within 3 s")
        return
    side = "ahead of" if ahead > 0 else "behind"
    reason = f"this machine is {duration.describe(round(abs(ahead)) * 1000)} {side} the broker"
    effect = ": `at=` and deletes by id go wrong"
    status: Status = "problem" if abs(ahead) > CLOCK_PROBLEM_SECONDS else "warning"
    yield Check(name, status, reason + effect, "run NTP on both machines")


def _permissions(facts: Facts) -> Iterator[Check]:
    name, rights = "permissions", facts.rights
    if isinstance(rights, Unknown):
        yield Check(name, "unknown", rights.reason)
        return
    named = {"configure": rights.configure, "write": rights.write, "read": rights.read}
    refused = [right for right, may in named.items() if may is False]
    untried = [right for right, may in named.items() if may is None]
    fix = _grant(facts)
    if rights.write is False:
        yield Check(name, "problem", f"{facts.user} may not write: it cannot put or delete", fix)
    elif refused:
        lost = {"configure": "it needs declare=False", "read": "it cannot consume"}
        effects = " and ".join(lost[right] for right in refused)
        reason = f"{facts.user} has no {' and no '.join(refused)} permission: {effects}"
        yield Check(name, "warning", reason, f"if that is not intended: {fix}")
    elif untried:
        yield Check(name, "unknown", f"could not try: {', '.join(untried)}")
    else:
        yield Check(name, "ok", f"{facts.user} may configure, write and read")


def _grant(facts: Facts) -> str:
    pattern = f"'^{facts.topology.namespace}\\.'"
    return f"rabbitmqctl set_permissions --vhost {facts.vhost} {facts.user} " + " ".join(
        [pattern] * 3
    )


BROKER_CHECKS = (
    *(_version, _management, _feature_flags, _dead_letter_retry, _consumer_timeout),
    *(_max_message_size, _alarms, _nodes, _members, _clock, _permissions),
)
"""The checks, in the order in which operators should read their results."""
