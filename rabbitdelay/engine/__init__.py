"""The engine: what happens on a connection, decided once for both fronts.

It speaks with the broker through wire.py, which sync/ has over pika and aio/ over aio-pika, and it
never waits: it is called, and calls back. Where a caller must wait, a flow (flows.py) yields for
what, and each front waits in its own way.
"""
