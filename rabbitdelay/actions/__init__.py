"""Actions: what `rabbitdelay consume` and `rabbitdelay pop` do with a job they hold.

An action is called with one job. When it returns, the job is finished. It raises `Bury` when the
job is to be kept for a person and `Retry` when it is to be tried again, after the job's backoff or
a delay of its own; any other error means the same as a plain `Retry`.
"""
