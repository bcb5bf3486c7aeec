"""Messages published by plain AMQP, straight into a queue or an exchange."""

from collections.abc import Iterable

import pika

from rabbitdelay.core.amqp import encode
from rabbitdelay.core.jobs.envelope import Message


def publish(url: str, queue: str, *messages: tuple[bytes, pika.BasicProperties | None]) -> None:
    """Publish straight into a queue, as any AMQP client can."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body, properties in messages:
            channel.basic_publish("", queue, body, properties, mandatory=True)


def publish_frames(url: str, key: str, messages: Iterable[Message], *, exchange: str = "") -> None:
    """Publish to a queue or an exchange headers and text that pika would not encode."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for message in messages:
            data = encode.publish(channel.channel_number, exchange, key, message, 131_072)
            connection._impl._adapter_emit_data(data)
        # Answered after the messages.
        if exchange:
            channel.exchange_declare(exchange, passive=True)
        else:
            channel.queue_declare(key, passive=True)
