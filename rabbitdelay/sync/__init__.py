"""The sync front end, on pika: one I/O thread per client, any number of calling threads."""
