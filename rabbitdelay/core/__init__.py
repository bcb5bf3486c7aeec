"""The core: everything that is decided, and nothing that is done.

No socket, clock, thread or logger: values and `now` go in, values come out. The way of a job:

    intake      what the user passed becomes a Job, or a clear error
    envelope    a Job becomes a Message, and back
    ladder      its delay becomes digits, a routing key and hops
    topology    the exchanges and queues it passes through
    setup       which of them are missing, and making them
    outbox      what was sent, and what the broker has confirmed
"""
