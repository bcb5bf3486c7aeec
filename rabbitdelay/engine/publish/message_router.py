"""Route messages: to an exchange and a routing key, once the queues on the way exist."""

from rabbitdelay.core.publish.pending import LadderEntry, Pending, Target
from rabbitdelay.core.publish.publish_route import PublishRoute
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.engine.topology.declarations import Declarations


class MessageRouter:
    """Finds the routes of messages, on the transport's thread."""

    def __init__(self, routes: Routes, declarations: Declarations) -> None:
        self._routes = routes
        self._declarations = declarations

    def route(self, pending: Pending, now: float) -> PublishRoute | None:
        """Return the route of a message. If a queue is missing, set it aside and return None."""
        entry = pending.route
        if isinstance(entry, Target):
            return self._to_target(pending, entry)
        return self._down_the_ladder(pending, entry, now)

    def _down_the_ladder(
        self, pending: Pending, entry: LadderEntry, now: float
    ) -> PublishRoute | None:
        topic, routes = entry.topic, self._routes
        route = routes.route(pending.delay_ms(entry, now))
        if routes.is_known(route, topic):
            key = route.key_prefix + topic
            # A hold queue has an exchange of its own; the ready queues share one.
            lane = route.exchange if route.hold_queues else key
            return PublishRoute(route.exchange, key, routes.safe_at(route, topic), lane)
        self._declarations.request(pending, routes.parts(route, topic))
        return None

    def _to_target(self, pending: Pending, target: Target) -> PublishRoute | None:
        part = target.part
        if part is not None and not self._routes.are_made((part,)):
            self._declarations.request(pending, (part,))
            return None
        safe_at = (
            self._routes.safe_at_queue(part.queue.name)
            if part and target.waits_until_stable
            else 0.0
        )
        lane = target.exchange if target.is_stream else f"{target.exchange}/{target.routing_key}"
        return PublishRoute(target.exchange, target.routing_key, safe_at, lane, target.is_stream)
