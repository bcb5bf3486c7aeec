"""The protocol core: every decision of rabbitdelay, without I/O.

Functions and classes here take values, and the current time as `now`, and return values. They use
no socket, clock, thread or logger. A job passes through the rooms in this order:

    jobs      validation: turns the arguments of put into a Job, or raises InvalidJob
              envelope: encodes a Job as a Message, and decodes it
    topology  ladder: turns a delay into digits, a routing key and hops
              topology: names the exchanges and queues of a namespace
              setup: finds out which of them are missing, and declares them
    amqp      encode: encodes a Message as AMQP frames
    publish   outbox: tracks each put until the broker has confirmed it

When the job is due:

    amqp      decode: decodes bytes from the broker as Messages
    work      scheduler: chooses the prefetched job that starts next
    deletes   tombstones: knows which jobs are deleted and which topics are paused
    consume   leases: tracks which jobs are reserved, and until when
    work      handlers: maps a job to the arguments of its handler
              exceptions: turns a handler's exception into a verdict on the job
              retry: decides whether a job is retried, and when
    settle    republish: makes the copy with which a job is retried, buried or kicked
              acknowledgements: finds the deliveries that can be acknowledged together
    work      responses, reply_queues: encode the handler's return value, and check its queue
              stats: counts the handled jobs and measures their lateness

Three rooms are not on this path: `parked` describes buried and unrouted jobs, `doctor` turns facts
about a broker into findings, and `peers` knows which clients are alive that exchange messages.
"""
