"""The engine: the behaviour of clients and workers on a connection, shared by both front ends.

The engine talks to the broker through the interface in transport.py, which sync/ implements with
pika and aio/ with aio-pika. The engine never blocks: the transport calls it with events, and the
engine calls back. An operation that has to wait is a flow (flow.py), which yields a future or a
pause, and each front end waits for that in its own way.

client.py contains the operations of a client. Rooms that core/ has too have the same names there:

    topology        declares the queues that messages and consumers need
    publish         publishes messages and waits for the broker's confirms
    deletes         reads and writes the log of deletes
    consume         receives jobs and responses on one connection
    pop             reserves single jobs for `pop`
    settle          acknowledges jobs, and republishes those that are retried or buried
    work            runs the handlers of a worker
    parked          lists, republishes and drops buried and unrouted jobs
    peers           messages between clients: the gateways of one namespace
    administration  creates, verifies, removes and counts the queues of a namespace
    doctor          collects the facts that `rabbitdelay doctor` judges
"""
