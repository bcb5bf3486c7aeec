"""Actions: how `rabbitdelay consume` and `rabbitdelay pop` process a job.

An action is called with one job. If it returns, the job is finished. If it raises `Bury`, the job
is buried for inspection. If it raises `Retry`, the job is retried after its backoff or after the
delay that the error carries. Any other exception is treated like a plain `Retry`.
"""
