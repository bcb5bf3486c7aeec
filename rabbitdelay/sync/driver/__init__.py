"""The transport on pika. Only this folder imports pika."""
