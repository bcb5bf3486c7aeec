"""Checks of the namespace: its policies, topology and log of deletes, and jobs that are stuck."""

from collections.abc import Iterator

from rabbitdelay.core.administration import policies, verification
from rabbitdelay.core.doctor.facts import Facts, Unknown
from rabbitdelay.core.doctor.report import Check, counted, first_names
from rabbitdelay.core.topology.setup import selecting


def _policies(facts: Facts) -> Iterator[Check]:
    name = "policies"
    if isinstance(facts.policed, Unknown):
        yield Check(name, "unknown", facts.policed.reason)
        return
    found = policies.problems(facts.policed)
    for problem in found:
        fix = f"rabbitmqctl list_policies, then narrow the pattern of {problem.policy}"
        yield Check(name, "problem", f"{problem.policy} {problem.detail}", fix)
    if not found:
        yield Check(name, "ok", "none that changes a job")


def _declarations(facts: Facts) -> Iterator[Check]:
    name, fix = "topology", f"rabbitdelay --namespace {facts.topology.namespace} topology apply"
    if facts.is_empty:
        reason = f"namespace {facts.topology.namespace} does not exist; the first put creates it"
        yield Check(name, "warning", reason, f"{fix} --all --topic TOPIC, before clients start")
        return
    wrong = [found for found in facts.declarations if found.kind != "policy" and found.is_problem]
    missing = [found.name for found in wrong if found.state == "missing"]
    different = [found.name for found in wrong if found.state == "different"]
    if missing:
        options = selecting(facts.topology, map(verification.destination, missing))
        yield Check(name, "problem", f"missing: {first_names(missing)}", fix + options)
    if different:
        again = "delete it while it is empty, then apply; or use another namespace"
        reason = f"declared with other arguments: {first_names(different)}"
        yield Check(name, "problem", reason, again)
    unchecked = [found for found in facts.declarations if found.state == "unchecked"]
    if unchecked and not wrong:
        reason = (
            f"no problem found, but {len(unchecked)} of {len(facts.declarations)} not checked: "
        )
        yield Check(name, "unknown", reason + unchecked[0].detail)
    elif not wrong:
        yield Check(name, "ok", f"{len(facts.declarations)} exchanges, queues and bindings")


def _log(facts: Facts) -> Iterator[Check]:
    name = "delete log"
    log = facts.topology.tombstones
    queues = () if isinstance(facts.queues, Unknown) else facts.queues
    row = next((queue for queue in queues if queue.name == log), None)
    if facts.is_empty:
        return
    if row is not None and row.leader is not None and row.leader not in row.online:
        fix = f"start the node {row.leader}"
        yield Check(name, "problem", f"{log} has no leader: deletes and workers wait", fix)
    elif facts.log_answers is False:
        fix = f"rabbitdelay --namespace {facts.topology.namespace} topology apply"
        yield Check(name, "problem", f"{log} is missing or does not answer", fix)
    elif isinstance(facts.log_answers, Unknown):
        yield Check(name, "unknown", facts.log_answers.reason)
    else:
        yield Check(name, "ok", "exists, and its leader is running")


def _unrouted(facts: Facts) -> Iterator[Check]:
    name = "unrouted jobs"
    if isinstance(facts.unrouted, Unknown):
        yield Check(name, "unknown", facts.unrouted.reason)
    elif facts.unrouted:
        reason = f"{counted(facts.unrouted, 'job')} could not be routed"
        fix = "rabbitdelay unrouted list; `unrouted retry` sends them on"
        yield Check(name, "problem", reason, fix)
    else:
        yield Check(name, "ok", "none")


def _buried(facts: Facts) -> Iterator[Check]:
    name = "buried jobs"
    if isinstance(facts.topics, Unknown):
        yield Check(name, "unknown", facts.topics.reason)
        return
    buried = {count.topic: count.buried for count in facts.topics if count.buried}
    if buried:
        reason = f"{counted(sum(buried.values()), 'job')} buried: {first_names(list(buried))}"
        yield Check(name, "warning", reason, "rabbitdelay buried list TOPIC")
    else:
        yield Check(name, "ok", "none")


def _consumers(facts: Facts) -> Iterator[Check]:
    name, fix = "consumers", "start a worker for the topic"
    if isinstance(facts.topics, Unknown):
        yield Check(name, "unknown", facts.topics.reason)
        return
    idle = [count for count in facts.topics if count.ready is not None and not count.consumers]
    waiting = [f"{count.topic} ({count.ready} ready)" for count in idle if count.ready]
    if waiting:
        reason = f"jobs are ready, but no worker runs: {first_names(waiting)}"
        yield Check(name, "problem", reason, fix)
    elif idle:
        names = first_names([count.topic for count in idle])
        yield Check(name, "warning", f"no worker runs: {names}", fix)
    else:
        each = ", each with a consumer" if facts.topics else ""
        yield Check(name, "ok", counted(len(facts.topics), "topic") + each)


def _stuck(facts: Facts) -> Iterator[Check]:
    name = "dead-lettering"
    if isinstance(facts.stuck, Unknown):
        yield Check(name, "unknown", facts.stuck.reason)
    elif facts.stuck:
        jobs = counted(sum(facts.stuck.values()), "job")
        reason = f"{jobs} stuck on the way out of {first_names(sorted(facts.stuck))}"
        yield Check(name, "problem", reason, _release(facts))
    else:
        yield Check(name, "ok", "no job is stuck between two queues")


def _release(facts: Facts) -> str:
    vhost, pattern = f"--vhost {facts.vhost}", f"'^{facts.topology.namespace}\\.'"
    return (
        "wait (the broker retries after 180 s by default) and set dead-letter retry. On 3.10 a "
        f"policy without effect moves them on at once: rabbitmqctl set_policy {vhost} nudge "
        f'{pattern} \'{{"queue-leader-locator":"balanced"}}\' --apply-to queues; '
        f"rabbitmqctl clear_policy {vhost} nudge"
    )


NAMESPACE_CHECKS = (*(_policies, _declarations, _log, _unrouted, _buried, _consumers, _stuck),)
"""The checks, in the order in which operators should read their results."""
