"""A model of RabbitMQ: exchanges, queues, streams, connections and channels, without I/O."""
