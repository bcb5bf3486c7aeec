"""All checks of a broker and a namespace, from facts to results with a reason and a fix.

A check whose fact could not be read is `unknown`, never `ok`.
"""

from rabbitdelay.core.doctor.broker_checks import BROKER_CHECKS
from rabbitdelay.core.doctor.facts import Facts
from rabbitdelay.core.doctor.namespace_checks import NAMESPACE_CHECKS
from rabbitdelay.core.doctor.report import Check


def judge(facts: Facts) -> tuple[Check, ...]:
    """Return the results of all checks, in the order in which operators should read them."""
    checks = (*BROKER_CHECKS, *NAMESPACE_CHECKS)
    return tuple(result for check in checks for result in check(facts))
