"""AMQP 0-9-1 as bytes: encoding publishes and acknowledgements, decoding deliveries."""
