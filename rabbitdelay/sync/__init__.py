"""The sync front, over pika: one I/O thread per client, any number of calling threads."""
