"""The engine: the behaviour of clients and workers on a connection, shared by both front ends.

The engine talks to the broker through transport.py, which sync/ implements with pika and aio/ with
aio-pika. It never waits: it is called, and calls back. Where a caller has to wait, a flow (flow.py)
yields what to wait for, and each front end waits in its own way.
"""
