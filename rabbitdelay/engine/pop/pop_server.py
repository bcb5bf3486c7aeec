"""Serve calls of pop: find their topics and give each a channel, as often as that is necessary."""

from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.pop.channel_pool import ChannelPool
from rabbitdelay.engine.pop.pop_calls import PopCalls
from rabbitdelay.engine.pop.pop_channel import PopChannel
from rabbitdelay.engine.pop.pop_request import PopRequest, PopState
from rabbitdelay.engine.pop.pop_topics import PopTopics
from rabbitdelay.errors import NamespaceMissing


class PopServer:
    """Serves the pops of one client, on the transport's thread."""

    def __init__(self, consumer: Consumer, log_reader: LogReader, calls: PopCalls) -> None:
        self._consumer = consumer
        self._log_reader = log_reader
        self._calls = calls
        self._topics = PopTopics(consumer, log_reader.known, calls, self.serve_again)
        self._pool = ChannelPool(consumer, log_reader.check, calls, self)

    def serve(self, request: PopRequest) -> None:
        """Serve a pop that has no channel, or note that it has to wait."""
        if request.is_over:
            return
        request.state = PopState.SERVED
        if self._consumer.first.error is not None:
            self._calls.connection_lost(request, self._consumer.first.error)
            return
        failure = self._log_reader.status.failure
        if failure is not None and not isinstance(failure, NamespaceMissing):
            self._calls.fail(request, failure)
            return
        if not self._log_reader.is_current or not self._topics.unpaused(request):
            self._calls.suspend(request)
            return
        self._log_reader.check.prepare()
        self._topics.find(request, self._take_channel)

    def log_changed(self, request: PopRequest) -> None:
        """Handle a change: the log was read or cut off, or a topic paused or resumed."""
        if request.channel is not None and self._topics.has_paused(request):
            self.serve_again(request)
        elif request.state is PopState.SUSPENDED:
            self.serve(request)
        elif request.channel is not None:
            request.channel.judge_again()

    def connection_lost(self) -> None:
        """Forget the channels, which were lost with the connection."""
        self._pool.connection_lost()

    def channel_lost(self, number: int, error: Exception) -> None:
        """Serve the pop of a channel that the broker closed again, but only once."""
        self._pool.channel_lost(number)
        for request in self._calls:
            if request.channel is not None and request.channel.number == number:
                self._begin_again_once(request, error)
        self._serve_waiting()

    # Called by the channels

    def serve_again(self, request: PopRequest) -> None:
        """Serve a pop from the beginning, because a job has to wait or its topics have changed."""
        channel, request.channel = request.channel, None
        if channel is not None:
            channel.leave()
        self.serve(request)

    def queue_deleted(self, request: PopRequest) -> None:
        """Serve a pop again, which declares its queue again."""
        request.channel = None
        self._consumer.queues.forget()
        self.serve(request)

    def idle(self, channel: PopChannel) -> None:
        """Take back a channel that has no pop to serve."""
        self._pool.take_back(channel)
        self._serve_waiting()

    # Channels

    def _take_channel(self, request: PopRequest) -> None:
        if request.is_over or request.channel is not None:
            return
        topics = self._topics.to_serve(request)
        if topics:
            self._pool.serve(request, topics)
        else:
            self._calls.suspend(request)

    def _serve_waiting(self) -> None:
        """Give free channels to the pops that wait for one and still need it."""
        while (request := self._pool.next_waiting()) is not None:
            self._take_channel(request)

    def _begin_again_once(self, request: PopRequest, error: Exception) -> None:
        request.lose_jobs()
        if request.began_again:
            self._calls.fail(request, error)
        else:
            request.began_again = True
            self.serve(request)
