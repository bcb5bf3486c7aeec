"""AMQP 0-9-1 as bytes: encode what is published, decode what is delivered."""
