"""Tasks of operators: create, verify, remove and count, over AMQP and the management API."""
