"""RabbitMQ as it is installed on this machine, and how a node is configured."""
