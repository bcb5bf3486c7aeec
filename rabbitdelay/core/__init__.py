"""The core: everything that is decided, and nothing that is done.

No socket, clock, thread or logger: values and `now` go in, values come out. The way of a job:

    intake      what the user passed becomes a Job, or a clear error
    envelope    a Job becomes a Message, and back
    ladder      its delay becomes digits, a routing key and hops
    topology    the exchanges and queues it passes through
    setup       which of them are missing, and making them
    outbox      what was sent, and what the broker has confirmed

and, when it is due:

    deliveries  bytes from the broker become messages
    life        the states of a job, and what each event makes of it
    turns       which of the jobs at hand starts next
    lease       who holds it until when
    handlers    what its handler is called with
    verdict     what the handler's exception means
    retry       whether it is tried again, and when
    copies      the message that it is given back, buried or kicked as
    responses   what its handler returned, for whoever asked
    reply_queues  the queues that responses may be written to
    tally       what was done, and how late
"""
