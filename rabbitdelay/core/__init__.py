"""Protocol core: every decision of rabbitdelay, without I/O.

Functions and classes here take values and the current time `now` and return values. They use no
socket, clock, thread or logger. A job passes through the rooms in this order:

    jobs      validation: arguments of put become a Job, or an InvalidJob error
              envelope: a Job becomes a Message, and back
    topology  ladder: a delay becomes digits, a routing key and hops
              topology: the exchanges and queues that a namespace consists of
              setup: which of them are missing, and the declarations that create them
    amqp      encode: a Message becomes AMQP frames
    publish   outbox: which publishes are in flight, and which the broker has confirmed

When the job is due:

    amqp      decode: bytes from the broker become Messages
    work      scheduler: which prefetched job starts next
    deletes   tombstones: which jobs are deleted
    consume   leases: which jobs are reserved, and until when
    work      handlers: the arguments that a handler is called with
              outcome: what a handler's exception means for its job
              retry: whether the job is retried, and when
    settle    republish: the copy with which a job is retried, buried or kicked
              acknowledgements: which deliveries can be acknowledged together
    work      responses, reply_queues: the handler's return value, and the queue it is sent to
              stats: counts and lateness of the jobs that were handled

Beside the way of a job, `parked` describes buried and unrouted jobs, and `doctor` turns facts about
a broker into findings.
"""
