"""AMQP frames, as the broker reads and writes them."""
