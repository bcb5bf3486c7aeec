"""The transport on aio-pika. Elsewhere aio-pika is imported only for the type of a connection."""
